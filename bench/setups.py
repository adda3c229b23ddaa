"""How each rule is put to the test by bench/rules.py: by which method, on which models, under which settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.util import find_spec

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.core.claim import SEED, Entry, Method
from unspool.loops.denoise import Denoise
from unspool.loops.speculate import Speculate
from unspool.loops.unmasker import FixedBlocks
from unspool.models.vocabulary import Vocabulary
from unspool.recipes.methods import claim_of, needs, ours
from unspool.recipes.names import known, parts_of
from unspool.recipes.verify import USUAL
from unspool.rules.constrain import Form, ItemSet, Static, choices, regex
from unspool.rules.draft import RSDC, Chain, Retrieve, SpecDecPP, SpecInfer, Store
from unspool.rules.search.rewarded import Rewarded
from unspool.rules.search.smc import Smc, systematic
from unspool.rules.unmask.filtered import Filtered
from unspool.rules.verify import rejection
from unspool_bench.prompts import BUILT_IN, TOWNS
from unspool_train import length
from unspool_train.filter import examples, train

READS, DRAFTED, CASCADE, FILLS = "reads", "drafted", "cascade", "fills"
MODELS = {
    READS: "smollm2",
    DRAFTED: "smollm2, draft model smollm2-diffusion read left to right, which is as large as the target",
    CASCADE: "smollm2, draft model smollm2 rounded to 4 bits, small model smollm2-diffusion, all of one size",
    FILLS: "smollm2-diffusion, plain decoding being the same model read left to right",
}
WARM, HOT = 0.8, 1.0
FORM = "[A-Z][a-z]{1,12}[.]?"
ONE_WORD = tuple(
    f"Answer with one word only: {question}"
    for question in ("what colour is the sky?", "what is the capital of Italy?", "which animal barks?")
)
TEXTS = 4  # drawn for each prompt where more of them tell more
FILLING = {"anyorder", "blended", "deliberate", "denoised", "fragments", "masks", "slots"}  # beside all of unmask/
WORDS = ("water", "time")
ITEMS = tuple(f"{town}, day {day}" for town in TOWNS for day in range(1, 101))
WITHOUT = {
    "insert": "No model at hand can drive it: it wants one that was trained to answer a gap with a token or with "
    "`none`, and smollm2-diffusion answers holes. What is known of it comes from enumeration.",
    "judged": "It reads a head that was trained for its target and its draft model (`unspool train judge`), and none "
    "comes with the weights. What is known of it comes from enumeration.",
}
FORMED = {"asap", "awrs", "cars", "forced", "smc"}
CACHES = {"cached_dual", "cached_prefix", "delayed", "interval", "windowed"}
IDLE = "idle here: this model computes its block anew at every look"
CLOCKED = {"auto": "It chooses by the times of the machine, so a run without times says nothing of it."}


def begun(text: str) -> float:
    """1 for a text of FORM."""
    return float(re.fullmatch(FORM, text) is not None)


def varied(text: str) -> float:
    """The share of a text's words that are different ones."""
    return len(set(text.lower().split())) / max(1, len(text.split()))


def worded(text: str) -> float:
    """The share of WORDS that a text has."""
    return sum(word in text.lower() for word in WORDS) / len(WORDS)


def listed(text: str) -> float:
    """1 for one of ITEMS."""
    return float(text in ITEMS)


@dataclass(frozen=True)
class Asked:
    """What a text is asked for besides being likely: a name for people, and a measure from 0 to 1."""

    name: str
    measure: Callable[[str], float]


@dataclass(frozen=True)
class Stock:
    """The models at hand, loaded when first asked for."""

    device: str = "auto"
    dtype: str = "auto"
    batch_invariant: bool = False

    def __getitem__(self, name: str) -> LM:
        return getattr(self, name)  # type: ignore[no-any-return]

    @cached_property
    def reads(self) -> LM:
        """The target."""
        return load("smollm2", device=self.device, dtype=self.dtype, batch_invariant=self.batch_invariant)

    @cached_property
    def fills(self) -> LM:
        """The model that fills holes."""
        return load("smollm2-diffusion", device=self.device, dtype=self.dtype)

    @cached_property
    def drafted(self) -> LM:
        """The target with a draft model."""
        return replace(self.reads, draft=self.fills)

    @cached_property
    def cascade(self) -> LM:
        """The target with a draft model that has one of its own."""
        rounded = load("smollm2", quantization="int4", device=self.device, dtype=self.dtype)
        return replace(self.reads, draft=replace(rounded, draft=self.fills))


@dataclass(frozen=True)
class Setup:
    """One way to run a rule.

    `method` is the name of a method with its options, or makes one from the models; `label` says what it is. Plain
    decoding runs beside it at the temperature `against`, under `beside` if that is not the same form. `exact` says
    whether the rule promises plain decoding's text here, greedily or, with SEED, also where it draws. `questions` are
    asked instead of the prompts, and `texts` are how many are drawn for each.
    """

    label: str
    models: str
    method: str | Callable[[Stock], Method]
    heat: float = 0.0
    against: float | None = None
    form: Callable[[Vocabulary], Form] | None = None
    beside: Callable[[Vocabulary], Form] | None = None
    asked: Asked | None = None
    exact: bool = False
    questions: tuple[str, ...] = ()
    texts: int = 1


def setups(entry: Entry, tokens: int, timed: bool) -> tuple[Setup, ...] | str:
    """The ways to run a rule, or why there is none."""
    reason = WITHOUT.get(entry.name) or ("" if timed else CLOCKED.get(entry.name, ""))
    if entry.name in FORMED and find_spec("llguidance") is None:
        reason = "It was run under a form, and this machine had no llguidance to read forms."
    if reason:
        return reason
    own = _own(entry, tokens)
    if own:
        return own
    if entry.name in USUAL:
        return _verifying(entry)
    fills = entry.family == "unmask" or entry.name in FILLING
    models = FILLS if fills else CASCADE if "small" in entry.needs else DRAFTED if "draft" in entry.needs else READS
    promised = entry.family == "draft" or entry.name == "plain"
    label = f"`{entry.name}` ({IDLE})" if entry.name in CACHES else f"`{entry.name}`"
    greedy = Setup(label, models, entry.name, exact=promised)
    drawing = entry.family == "draft" or entry.name in ("plain", "anyorder", "blended")
    warm = replace(greedy, heat=WARM, exact=promised and entry.claim is SEED, texts=TEXTS)
    return (greedy, warm) if drawing else (greedy,)


def written(spec: str) -> tuple[Setup, ...]:
    """A method as somebody writes it, greedily, on the models that it needs."""
    said = [ours(known(part.said) or part.said) for part in parts_of(spec)]
    fills = any(each.family == "unmask" or each.name in FILLING for each in said)
    if "by=draft" in spec or "draft" in needs(spec):
        models = CASCADE if "small" in needs(spec) else DRAFTED
    else:
        models = FILLS if fills else READS
    exact = claim_of(spec).name in ("SEED", "LAW", "ARGMAX") and models != FILLS
    return (Setup(f"`{spec}`", models, spec, exact=exact),)


def _verifying(entry: Entry) -> tuple[Setup, ...]:
    """A verifier behind the same drafts as the others: a chain, and siblings where texts are drawn."""
    made = entry.rule if not isinstance(entry.rule, type) else entry.rule()
    if entry.name == "race":  # its drafts are raced with the target's noise
        return tuple(Setup("raced chain of 4", DRAFTED, "raced", h, exact=h == 0, texts=TEXTS) for h in (0.0, WARM))
    independent = entry.name in ("kseq", "multipath")
    tree = SpecInfer(paths=2, depth=3) if independent else RSDC(widths=(2, 1, 1))
    named = "2 drawn texts of 3 tokens" if independent else "2 different tokens, each gone on with by 2"
    heat, against = (HOT, 0.0) if entry.name == "top_beta" else (WARM, None)  # it draws nothing and judges at 1
    texts = TEXTS if heat == WARM else 1
    exact = entry.claim.name in ("SEED", "LAW", "ARGMAX")
    chained, branched = (lambda stock: Speculate(Chain(depth=4), made)), (lambda stock: Speculate(tree, made))
    found = [Setup("chain of 4", DRAFTED, chained, exact=exact)] if heat == WARM else []
    if entry.name == "greedy":  # the same text at any temperature
        return (*found, Setup(named, DRAFTED, branched, exact=True))
    seeded = exact and entry.claim is SEED
    return (
        *found,
        Setup("chain of 4", DRAFTED, chained, heat, against, exact=seeded, texts=texts),
        Setup(named, DRAFTED, branched, heat, against, exact=seeded, texts=texts),
    )


def _own(entry: Entry, tokens: int) -> tuple[Setup, ...]:
    """Rules that want options, a form, something to read from, or a budget."""
    rows, name = 8 * tokens, entry.name
    freely = Asked("texts that have the form", begun)
    said = Asked(f"of the words {' and '.join(WORDS)}", worded)

    def named(options: str, heat: float = 0.0, asked: Asked | None = None, models: str = READS) -> Setup:
        spec = f"{name}:{options}" if options else name
        return Setup(f"`{spec}`", models, spec, heat, asked=asked)

    def formed() -> Setup:
        label = f"`{name}` under `{FORM}`, asked for one word"
        return replace(named("", HOT, freely), label=label, form=_plainly, questions=ONE_WORD)

    match name:
        case "early_answer":
            return (named("rounds=12,window=4"),)
        case "asap" | "cars" | "smc":
            return (formed(),)
        case "awrs":  # its seed is plain decoding's without a form; under one it has the same law
            return (replace(named("", HOT), exact=True), formed())
        case "static":
            return (Setup(f"plain decoding among {len(ITEMS):,} items", READS, "plain", HOT, None, _items, _trie,
                          Asked("texts that are items", listed), True),)  # fmt: skip
        case "forced":
            return tuple(
                Setup("`forced`, a JSON record", READS, "forced", heat, form=_record, exact=True)
                for heat in (0.0, WARM)
            )
        case "retrieve":
            label = "a store of the prompts and passages of `unspool bench`"
            return tuple(Setup(label, READS, _retrieving, heat, exact=True) for heat in (0.0, WARM))
        case "specdecpp":
            label = "a head trained on 6 other prompts"
            made, heats = cache(_foreseeing(tokens)), ((0.0, True), (WARM, False))  # one head for both
            return tuple(Setup(label, DRAFTED, made, h, exact=e, texts=TEXTS) for h, e in heats)
        case "filtered":
            return (Setup("a filter trained on 6 other prompts", FILLS, _filtering(tokens)),)
        case "rollback":  # at temperature 0 every token but the best is infinitely surprising
            return (replace(named("", HOT, models=DRAFTED), against=0.0),)
        case "steps":
            return (named("longest=24", models=DRAFTED),)
        case "template":
            return (named(f"words={'+'.join(WORDS)}", asked=said),)
        case "slots":
            return (named("size=16,beam=2", models=FILLS),)
        case "beam" | "diverse":
            return (named(""),)
        case "chaotic":
            return (named(f"rows={rows}"),)
        case "neurologic":
            return (named(f"words={'+'.join(WORDS)},rows={rows}", asked=said),)
        case "stochastic":
            return (replace(named("", WARM), exact=True),)
        case "several":
            return (named("", WARM),)
        case "astar" | "cautious" | "foresight":
            return (named(f"rows={rows}", WARM),)
        case "mcts":
            return (named(f"rollouts=16,rows={rows}", WARM),)
        case "rewarded":
            return (
                Setup("8 particles, 10 × the share of different words", READS, _rewarding, WARM,
                      asked=Asked("share of different words", varied)),
            )  # fmt: skip
    return ()


def _plainly(words: Vocabulary) -> Form:
    return regex(FORM)


def _record(words: Vocabulary) -> Form:
    return regex('\\{"name": "[A-Z][a-z]{2,9}", "year": [12][0-9]{3}, "place": "[A-Z][a-z]{2,9}"\\}')


def _items(words: Vocabulary) -> Form:
    lead = len(words.encode("", special=False))
    spelt = [words.encode(item, special=False)[lead:] for item in ITEMS]
    return Static(ItemSet.of(spelt, words.size, words.eos))


def _trie(words: Vocabulary) -> Form:
    return choices(*ITEMS)


def _retrieving(stock: Stock) -> Method:
    lm = stock[READS]
    return Speculate(Retrieve(Store([lm.encode(text) for family in BUILT_IN.values() for text in family])), budget=16)


def _rewarding(stock: Stock) -> Method:
    return Smc(8, potential=Rewarded(varied, 10.0), resample=systematic, block=8)


def _foreseeing(tokens: int) -> Callable[[Stock], Method]:
    def made(stock: Stock) -> Method:
        settings = length.LengthSettings(tokens=tokens, depth=6)
        data = length.observed(stock[DRAFTED], [texts[1] for texts in BUILT_IN.values()], settings)
        return Speculate(SpecDecPP(length.train(data, settings).head), rejection, budget=20)

    return made


def _filtering(tokens: int) -> Callable[[Stock], Method]:
    def made(stock: Stock) -> Method:
        lm = stock[FILLS]
        prompts = [lm.encode([{"role": "user", "content": texts[1]}]) for texts in BUILT_IN.values()]
        net = train(examples(lm.model, prompts, tokens)).filter  # type: ignore[arg-type]
        return Denoise(Filtered(net, net.size), 0, FixedBlocks(net.size))

    return made
