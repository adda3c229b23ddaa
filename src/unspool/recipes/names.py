"""The names of methods: where each rule stands, and what else people call it. To look one up imports nothing else."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

from ..core.errors import BadRequest
from .aliases import ELSEWHERE, KNOWN_AS, PAPERS, RENAMED

SHOWN = 60  # characters of what was given that a message repeats
NEAR = 5  # suggestions for a name that is not known

# The rules by family; `name=module` where the module is called otherwise.
RULES = {
    "constrain": ("asap awrs cars static"),
    "decode": ("anyorder deliberate fragments insert plain=autoregressive slots steps template"),
    "draft": (
        "aligned auto bigram_recycling bild blocks cascade chain copy coupled denoised dyspec either "
        "escalate forced heads jacobi likeliest lookahead lookup masks merge on_device paced phrase "
        "prefilled raced recycle retrieve rsd_c rsd_s sequoia slem slrs specinfer stand suffix suffixtree "
        "surest=escalate trigram"
    ),
    "search": ("astar beam cautious chaotic diverse foresight mcts neurologic rewarded several smc stochastic"),
    "unmask": (
        "adaptive ancestral annealed cached_dual cached_prefix checked clocked confident context cooling "
        "credited cycle delayed dynamic early edit entropy_bound explore factor filtered foreseen guided "
        "hierarchy interval local one=one_by_one peaked quota redundant renoise resample sliding softened "
        "stable timed windowed"
    ),
    "verify": (
        "blended block conditional greedy kseq lenient mixture multipath race rejection rollback "
        "sample_match top_beta traversal typical zeroing"
    ),
}


class Home(NamedTuple):
    """Where a rule stands below `unspool.rules`."""

    family: str
    module: str


def _homes() -> dict[str, Home]:
    found: dict[str, Home] = {}
    for family, names in RULES.items():
        for said in names.split():
            name, _, module = said.partition("=")
            found[name] = Home(family, module or name)
    return found


HOMES = _homes()


def plainly(name: str) -> str:
    """A name without what people write differently: case, spaces, hyphens, underscores, dots."""
    return re.sub(r"[\s_\-.]+", "", name).lower()


_ALIASES = {plainly(alias): name for alias, name in KNOWN_AS.items()}
_ELSEWHERE = {plainly(system): told for system, told in ELSEWHERE.items()}


def known(name: str) -> str | None:
    """What a method that people call so is called here; None if nobody knows."""
    if name in HOMES:
        return name
    if name in RENAMED:
        return RENAMED[name]
    if paper := re.fullmatch(r"(?:arxiv:)?(\d{4}\.\d{4,5})(?:v\d+)?", name.strip(), re.IGNORECASE):
        return PAPERS.get(paper[1])
    said = plainly(name[: 2 * SHOWN])
    return _ALIASES.get(said) or next((own for own in HOMES if plainly(own) == said), None)


def renamed(name: str) -> str | None:
    """A note for those who give the old name of a method; None for all other names."""
    return f"the method {name!r} is now called {RENAMED[name]!r}; the old name goes in 0.2" if name in RENAMED else None


def parted(spec: str) -> tuple[str, str, str]:
    """A spec as its name, a colon if there is one, and its options; arxiv:2304.04487 is a name."""
    prefix = "arxiv:" if spec.lower().startswith("arxiv:") else ""
    name, colon, rest = spec[len(prefix) :].partition(":")
    return spec[: len(prefix)] + name, colon, rest


def canonical(spec: str) -> str:
    """A spec with the name that we use; one that nobody knows stays as it is."""
    name, colon, rest = parted(spec)
    return (known(name) or name) + colon + rest


def suggestions(name: str) -> list[str]:
    """The names that were most probably meant, at most five."""
    said = {plainly(own): own for own in HOMES} | {alias: alias for alias in _ALIASES}
    given = plainly(name[:SHOWN])
    near = difflib.get_close_matches(given, said, n=NEAR, cutoff=0.6)
    alike = [difflib.SequenceMatcher(None, given, each).ratio() for each in near]
    close = [each for each, like in zip(near, alike, strict=True) if like > alike[0] - 0.12]
    return list(dict.fromkeys(_written(said[each]) for each in close))


def unknown(name: str) -> BadRequest:
    """What to tell somebody whose method nobody knows."""
    if told := _ELSEWHERE.get(plainly(name[: 2 * SHOWN])):
        return BadRequest(f"{cut(name)!r} is no method by itself: {told}.")
    near = suggestions(name)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return BadRequest(f"no method is called {cut(name)!r}.{hint} `unspool methods` lists them all.")


def cut(text: str) -> str:
    """A text as it is shown in a message, of which a stranger does not choose the length."""
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def _written(name: str) -> str:
    """An alias as people write it, with the method that it stands for."""
    if name in HOMES:
        return name
    return next(alias for alias in KNOWN_AS if plainly(alias) == name)
