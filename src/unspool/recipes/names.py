"""The names of methods: where each rule stands, and what else people call it. To look one up imports nothing else."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

from ..core.errors import BadRequest

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

# What papers, systems and engines call them. Of several rules of one system, the one that people mean by its name.
KNOWN_AS = {
    "AdaBlock": "adaptive",
    "AdaBlock-dLLM": "adaptive",
    "AASD": "aligned",
    "MaskGIT": "annealed",
    "AS-ARM": "anyorder",
    "ASSD": "anyorder",
    "A*": "astar",
    "A*-decoding": "astar",
    "beam search": "beam",
    "APD": "blended",
    "block verification": "block",
    "GS-Jacobi": "blocks",
    "HGJ": "blocks",
    "Parallel GS-Jacobi": "blocks",
    "Parallel Jacobi": "blocks",
    "PD-VLA": "blocks",
    "PGJ": "blocks",
    "PJ": "blocks",
    "fast-dllm-cache": "cached_dual",
    "fast-dllm-prefix-cache": "cached_prefix",
    "SpecMQuant": "cascade",
    "CNTP": "cautious",
    "assisted generation": "chain",
    "DFlash": "chain",
    "draft model": "chain",
    "DSpark": "chain",
    "MLP speculator": "chain",
    "MTP": "chain",
    "P-EAGLE": "chain",
    "speculative decoding": "chain",
    "speculative sampling": "chain",
    "SED": "chaotic",
    "Dimple": "clocked",
    "Fast-dLLM": "confident",
    "aggressive decoding": "copy",
    "IAD": "copy",
    "Input-guided aggressive decoding": "copy",
    "drafter-invariant": "coupled",
    "Drafter-invariant speculation": "coupled",
    "CreditDecoding": "credited",
    "SlowFast": "cycle",
    "SlowFast sampling": "cycle",
    "dKV-Cache": "delayed",
    "Whisper-LLaDA": "deliberate",
    "S2D2": "denoised",
    "diverse beam search": "diverse",
    "LLaDA2": "dynamic",
    "LLaDA2.0": "dynamic",
    "SDAR": "dynamic",
    "Prophet": "early",
    "LLaDA2.1": "edit",
    "EB-Sampler": "entropy_bound",
    "S2D": "escalate",
    "ETE": "explore",
    "Learn2PD": "filtered",
    "fast-forward": "forced",
    "jump-forward": "forced",
    "Predictive-Decoding": "foresight",
    "GenMol": "fragments",
    "blockwise parallel decoding": "greedy",
    "medusa": "heads",
    "dInfer": "hierarchy",
    "POINTER": "insert",
    "dLLM-Cache": "interval",
    "FastCoT": "jacobi",
    "Jacobi decoding": "jacobi",
    "SpecTr": "kseq",
    "DDTree": "likeliest",
    "EAGLE-2": "likeliest",
    "EAGLE-3": "likeliest",
    "EAGLE-3.1": "likeliest",
    "JetSpec": "likeliest",
    "OPT-Tree": "likeliest",
    "LocalLeap": "local",
    "LADE": "lookahead",
    "lookahead decoding": "lookahead",
    "LLMA": "lookup",
    "ngram": "lookup",
    "PLD": "lookup",
    "prompt lookup": "lookup",
    "prompt lookup decoding": "lookup",
    "SPACE": "masks",
    "PG-TD": "mcts",
    "GBV": "multipath",
    "NeuroLogic A*esque": "neurologic",
    "NeuroLogic decoding": "neurologic",
    "random remasking": "one",
    "adaptive draft length": "paced",
    "SpecDec++": "paced",
    "dParallel": "peaked",
    "Ouroboros": "phrase",
    "autoregressive": "plain",
    "Autoregressive sampling": "plain",
    "greedy decoding": "plain",
    "sampling": "plain",
    "LLaDA": "quota",
    "low-confidence remasking": "quota",
    "token recycling": "recycle",
    "R2-dLLM": "redundant",
    "R²-dLLM": "redundant",
    "MDLM": "renoise",
    "ReMDM": "renoise",
    "AR2Diff": "resample",
    "CodeSwift": "retrieve",
    "REST": "retrieve",
    "SMC reward-guided": "rewarded",
    "best-of-n": "several",
    "BoN": "several",
    "WeDLM": "sliding",
    "MDGR": "slots",
    "Power-SMC": "smc",
    "LRD": "softened",
    "dyspec-tree": "dyspec",
    "KLASS": "stable",
    "SpecReason": "steps",
    "stochastic beam search": "stochastic",
    "SAM-Decoding": "suffix",
    "suffix decoding": "suffixtree",
    "AutoTemplate": "template",
    "Dream": "timed",
    "traversal verification": "traversal",
    "Adaptix": "trigram",
    "ADED": "trigram",
    "typical acceptance": "typical",
    "sampler match": "sample_match",
    "Window-Diffusion": "windowed",
    "EAGLE": "zeroing",
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

# The method that stands for a paper, by its number on arXiv.
PAPERS = {
    "1610.02424": "diverse",
    "1811.03115": "greedy",
    "1903.06059": "stochastic",
    "2005.00558": "insert",
    "2112.08726": "neurologic",
    "2202.04200": "annealed",
    "2203.16487": "top_beta",
    "2205.10350": "copy",
    "2211.08387": "template",
    "2211.17192": "chain",
    "2302.07863": "bild",
    "2303.05510": "mcts",
    "2304.04487": "lookup",
    "2305.09781": "specinfer",
    "2305.10427": "jacobi",
    "2310.15141": "kseq",
    "2311.08252": "retrieve",
    "2401.10774": "heads",
    "2401.15077": "zeroing",
    "2401.17181": "resample",
    "2402.02057": "lookahead",
    "2402.12374": "sequoia",
    "2402.13720": "phrase",
    "2402.14160": "rsd_c",
    "2403.10444": "block",
    "2405.16552": "chaotic",
    "2405.19715": "paced",
    "2405.21047": "asap",
    "2406.17276": "likeliest",
    "2407.01955": "escalate",
    "2407.12021": "trigram",
    "2408.07978": "coupled",
    "2408.08696": "recycle",
    "2410.11744": "dyspec",
    "2410.17195": "foresight",
    "2411.04975": "suffixtree",
    "2411.10666": "suffix",
    "2501.06158": "fragments",
    "2502.05202": "slem",
    "2502.09992": "quota",
    "2503.00307": "renoise",
    "2504.05410": "awrs",
    "2504.07891": "steps",
    "2504.20456": "anyorder",
    "2505.12398": "traversal",
    "2505.13204": "aligned",
    "2505.13672": "astar",
    "2505.15781": "delayed",
    "2505.16990": "clocked",
    "2505.22179": "cascade",
    "2505.22618": "confident",
    "2505.24857": "entropy_bound",
    "2506.00413": "blended",
    "2506.04708": "stand",
    "2506.06295": "interval",
    "2506.10848": "cycle",
    "2507.03038": "cautious",
    "2508.15487": "timed",
    "2508.19982": "early",
    "2509.16622": "deliberate",
    "2509.25188": "filtered",
    "2509.26432": "adaptive",
    "2509.26488": "peaked",
    "2510.01902": "cars",
    "2510.06133": "credited",
    "2510.06303": "dynamic",
    "2510.07081": "local",
    "2510.08666": "hierarchy",
    "2510.11052": "softened",
    "2511.05664": "stable",
    "2511.21103": "explore",
    "2601.19501": "slots",
    "2602.08676": "edit",
    "2602.16961": "multipath",
    "2602.22647": "static",
    "2603.25702": "denoised",
    "2604.16453": "rewarded",
    "2604.18995": "redundant",
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
