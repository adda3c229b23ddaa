"""How methods are named, the same on every surface: names, and specs of them. To look one up imports no rule.

    lookup:ngram=2,depth=8              a method by name, with options
    chain:depth=4 + block               what drafts, and what verifies
    chain:depth=4,verify=block          the same, for a verifier without options
    factor + cached_dual                which holes are filled, and how is looked (`unspool.recipes.canvas_parts`)
    stand@process + rejection           whose memory is shared (`unspool.recipes.memory`)
    rules.py:mine:depth=2 + rejection   an object of one's own, as a part or alone; never from a request

Parts are joined by a plus with blanks around it; without them it is part of a value, as in widths=3+2+1.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from .. import recipes
from ..core.errors import SHOWN, BadRequest, cut

MOST = 5  # parts of a spec: what fills canvases has as many
NEAR = 5  # suggestions for a name that is not known
LONGEST = 8192  # characters of a spec: two names of files, and room for the rest
_JOINED = re.compile(r"(?<=\S)\s+\+\s+")  # a run of blanks is tried once, not from each of them
_FILE = re.compile(r"([^=,]+\.py:[A-Za-z_]\w*)(?::(.*))?", re.DOTALL)  # mcts:reward=FILE.py:NAME is an option

# The rules by family; `name=module` where the module is called otherwise.
RULES = {
    "constrain": ("asap awrs cars static"),
    "decode": (
        "anyorder capped_jacobi deliberate early_answer fragments insert plain=autoregressive slots steps template"
    ),
    "draft": (
        "adaedl aligned auto bigram_recycling bild blocks cascade chain copy coupled denoised dyspec "
        "dyspec_threshold either escalate forced heads jacobi likeliest lookahead lookup masks merge on_device "
        "paced pearl phrase prefilled raced recycle retrieve rsd_c rsd_s sequoia slem slrs specdecpp spechub "
        "specinfer stand suffix suffixtree surest=escalate svip tetris trigram"
    ),
    "search": ("astar beam cautious chaotic diverse foresight mcts neurologic rewarded several smc stochastic"),
    "unmask": (
        "adaptive ancestral annealed cached_dual cached_prefix checked clocked confident context cooling "
        "credited cycle delayed dynamic early edit entropy_bound explore factor filtered foreseen guided "
        "hierarchy interval leading local one=one_by_one peaked quota redundant renoise resample sliding softened "
        "stable timed windowed"
    ),
    "verify": (
        "blended block conditional greedy judged kseq lenient mixture multipath race rejection "
        "rollback sample_match synthetic top_beta traversal typical zeroing"
    ),
}


# What methods were called before 0.1; each is understood, with a note, until 0.2.
RENAMED = {
    "bunch": "specinfer",
    "bush": "rsd_c",
    "little": "bild",
    "prose": "slem",
    "recall": "bigram_recycling",
    "resident": "on_device",
    "shaped": "sequoia",
    "sprout": "dyspec",
    "strings": "slrs",
    "thicket": "rsd_s",
    "walk": "sample_match",
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
# Drafters that can stand inside others by name: those that ask at most a draft model, need no file and are no cascade.
_ALONE = {
    *("cascade", "denoised", "escalate", "masks", "on_device", "phrase", "retrieve", "slem", "slrs", "specdecpp"),
    "surest",
    "tetris",
}
INNER = tuple(name for name, home in HOMES.items() if home.family == "draft" and name not in _ALONE)
ASKED = {"draft": "small"}  # whom an inner drafter asks that asks the draft model
BY_MODELS = "by_models"  # the small model if there is one, else what was written before


def plainly(name: str) -> str:
    """A name without what people write differently: case, spaces, hyphens, underscores, dots."""
    return re.sub(r"[\s_\-.]+", "", name).lower()


@cache
def _aliases() -> dict[str, str]:
    return {plainly(alias): name for alias, name in recipes.aliases.KNOWN_AS.items()}


@cache
def _elsewhere() -> dict[str, str]:
    return {plainly(system): told for system, told in recipes.aliases.ELSEWHERE.items()}


def elsewhere(name: str) -> str | None:
    """What gives a system that is no method by itself; None if none is called so."""
    return _elsewhere().get(plainly(name))


@lru_cache(maxsize=256)
def known(name: str) -> str | None:
    """What a method that people call so is called here; None if nobody knows."""
    if name in HOMES:
        return name
    if name in RENAMED:
        return RENAMED[name]
    if paper := re.fullmatch(r"(?:arxiv:)?(\d{4}\.\d{4,5})(?:v\d+)?", name.strip(), re.IGNORECASE):
        return {**recipes.aliases.DRAFTER_PAPERS, **recipes.aliases.PAPERS}.get(paper[1])
    said = plainly(name)
    return _aliases().get(said) or next((own for own in HOMES if plainly(own) == said), None)


def renamed(name: str) -> str:
    """A note for those who give a method one of the names in `RENAMED`."""
    return f"the method {name!r} is now called {RENAMED[name]!r}; the old name goes in 0.2"


def suggestions(name: str) -> list[str]:
    """The names that were most probably meant, at most five."""
    said = {plainly(own): own for own in HOMES} | {alias: alias for alias in _aliases()}
    given = plainly(name)[:SHOWN]
    near = difflib.get_close_matches(given, said, n=NEAR, cutoff=0.6)
    alike = [difflib.SequenceMatcher(None, given, each).ratio() for each in near]
    close = [each for each, like in zip(near, alike, strict=True) if like > alike[0] - 0.12]
    return list(dict.fromkeys(_written(said[each]) for each in close))


def unknown(name: str) -> BadRequest:
    """What to tell somebody whose method nobody knows."""
    if told := elsewhere(name):
        return BadRequest(f"{cut(name)!r} is no method by itself: {told}.")
    near = suggestions(name)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return BadRequest(f"no method is called {cut(name)!r}.{hint} `unspool methods` lists them all.")


def _written(name: str) -> str:
    """An alias as people write it, with the method that it stands for."""
    if name in HOMES:
        return name
    return next(alias for alias in recipes.aliases.KNOWN_AS if plainly(alias) == name)


class Part(NamedTuple):
    """One part of a spec: its name, options as they were written, whether the name is FILE.py:NAME, and its scope."""

    said: str
    rest: str = ""
    file: bool = False
    scope: str = ""

    @property
    @lru_cache(maxsize=256)  # noqa: B019  (a few short texts)
    def given(self) -> Mapping[str, str]:
        """The options by name, as texts."""
        found: dict[str, str] = {}
        for each in filter(None, self.rest.split(",")):
            option, equals, value = each.partition("=")
            if not equals:
                raise BadRequest(
                    f"{cut(each)!r} in {cut(str(self))!r} is not an option: write {self.said}:option=value,option=value"
                )
            if (option := option.strip()) in found:
                raise BadRequest(f"{cut(str(self))!r} gives the option {cut(option)!r} twice; give it once")
            found[option] = value
        return found

    def __str__(self) -> str:
        name = f"{self.said}@{self.scope}" if self.scope else self.said
        return f"{name}:{self.rest}" if self.rest else name


@lru_cache(maxsize=256)
def parts_of(spec: str) -> tuple[Part, ...]:
    """The parts of a spec; BadRequest if there are too many. No name is looked up."""
    if len(spec) > LONGEST:
        raise BadRequest(f"the method {cut(spec)!r} has {len(spec)} characters; expected at most {LONGEST}")
    texts = _JOINED.split(spec.strip())
    if len(texts) > MOST:
        raise BadRequest(f"the method {cut(spec)!r} has {len(texts)} parts; expected at most {MOST}")
    first, *rest = map(_part, texts)
    return (*_verified(first), *rest)


def _verified(part: Part) -> tuple[Part, ...]:
    """A drafter and the verifier that its option `verify` names, as if they were joined by a plus."""
    said = [] if part.file else [each for each in part.rest.split(",") if each.partition("=")[0].strip() == "verify"]
    if len(said) != 1:  # given twice, it is left to be refused as any other option is
        return (part,)
    rest = ",".join(each for each in part.rest.split(",") if each != said[0])
    return part._replace(rest=rest), _part(said[0].partition("=")[2])


def _part(text: str) -> Part:
    text = text.strip()
    if yours := _FILE.fullmatch(text):
        return Part(yours[1], yours[2] or "", file=True)
    prefix = "arxiv:" if text.lower().startswith("arxiv:") else ""  # arxiv:2304.04487 is a name
    name, _, rest = text[len(prefix) :].partition(":")
    name, at, scope = name.partition("@")
    if at and not scope:
        raise BadRequest(f"{cut(text)!r} has no scope behind its @; leave that out, or write {cut(name)}@process")
    return Part(text[: len(prefix)] + name, rest, scope=scope)


def canonical(spec: str) -> str:
    """A spec with the names that we use; those that nobody knows stay as they are."""
    return " + ".join(str(part._replace(said=known(part.said) or part.said)) for part in parts_of(spec))


def checked(spec: str) -> tuple[str, list[str]]:
    """A spec with new names for old ones, and a note for each; BadRequest if a name is not known."""
    notes: list[str] = []
    for part in parts_of(spec):
        if part.file:
            continue
        if known(part.said) is None:
            raise unnamed(part.said)
        notes += [renamed(part.said)] if part.said in RENAMED else []
    return (canonical(spec) if notes else spec), notes


def unnamed(said: str) -> BadRequest:
    """What to tell somebody whose method nobody knows; a plus without blanks around it is the likeliest reason."""
    if said.endswith(".py"):
        return BadRequest(f"{cut(said)} is a file; name a method in it, as in {cut(said)}:method")
    pieces = said.split("+")
    if len(pieces) == 2 and all(map(known, pieces)):
        return BadRequest(f"no method is called {cut(said)!r}; put blanks around the plus: {' + '.join(pieces)!r}")
    if not all(map(str.strip, pieces)):
        lacks = "a part beside its plus" if len(pieces) > 1 else "a name"
        return BadRequest(f"the method {cut(said)!r} lacks {lacks}; write it as in 'lookup' or 'lookup + block'")
    return unknown(said)
