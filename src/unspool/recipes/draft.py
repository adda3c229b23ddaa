"""Recipes of drafters: what drafts, under which verifier, with how many nodes per round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from .. import recipes, rules
from ..core.claim import Method
from ..core.errors import BadRequest
from ..core.option import (
    Choice,
    Depth,
    Few,
    FileName,
    Ngram,
    Nodes,
    Numbers,
    Product,
    Range,
    Share,
    Texts,
    Weight,
    part,
)
from ..core.verifier import sample_match
from ..loops.speculate import Speculate
from ..rules import draft

SHARED = ("chain", "likeliest", "rsd_c", "suffix", "recycle")  # whose nodes a batch can share by name


def aligned(
    ngram: Ngram = 3, least: Ngram = 2, depth: Depth = 5, beside: Annotated[int, Range(0, 16)] = 2, poor: Weight = 0.9
) -> Annotated[Method, Product(256, "depth", "beside")]:
    """Aligned copies under sample matching; others beside what had less than `poor` of the target's probability."""
    return Speculate(draft.Aligned(draft.Lookup(ngram, least, depth), beside, poor), budget=depth * (1 + beside))


def auto(nodes: Nodes = 31) -> Method:
    """Whatever pays, under sample matching."""
    return Speculate(draft.Auto(), budget=nodes)


def bigram_recycling(nodes: Nodes = 16, memory: FileName = "") -> Method:
    """Remembered laws under sample matching."""
    return _kept(Speculate(draft.BigramRecycling(), budget=nodes), memory)


def bild(sure: Share = 0.6, steps: Depth = 10) -> Method:
    """A greedy chain of a draft model under sample matching."""
    return Speculate(draft.BiLD(sure, steps), budget=steps)


def blocks(size: Depth = 8) -> Method:
    """Jacobi decoding in blocks under sample matching."""
    return Speculate(draft.Jacobi(draft.JacobiBlocks(size)), budget=max(size - 1, 1))


def cascade(
    depth: Few = 6,
    ngram: Ngram = 3,
    copied: Few = 5,
    inner: Annotated[str, Choice((recipes.names.BY_MODELS, *recipes.names.INNER))] = recipes.names.BY_MODELS,
) -> Method:
    """The draft model's tokens under rejection; `inner` drafts for it: the small model if there is one, else copies."""
    copies = Speculate(draft.Lookup(ngram, min(2, ngram), copied), sample_match)
    return recipes.cascading.cascade_of(inner, depth, copies, copied)


def chain(depth: Depth = 4) -> Method:
    """A drafted chain under rejection."""
    return Speculate(draft.Chain(depth), rules.verify.rejection, budget=depth)


def copy(depth: Depth = 16, ngram: Ngram = 3, input: FileName = "") -> Method:
    """Copying from the prompt, or from the beginning of a file, under sample matching."""
    made = Speculate(draft.Copy(depth, ngram), budget=depth)
    return recipes.prediction.predicted(made, recipes.prediction.read(input)) if input else made


def coupled(depth: Depth = 4) -> Method:
    """A coupled chain under sample matching."""
    return Speculate(draft.Coupled(depth), budget=depth)


def denoised(depth: Depth = 4) -> Method:
    """A block that is filled in one look, under rejection."""
    return Speculate(draft.Denoised(depth), rules.verify.rejection, budget=depth)


def dyspec(nodes: Nodes = 12, least: Annotated[float, Range(0, 0.999)] = 0.05) -> Method:
    """A tree of the likeliest slots under rejection."""
    return Speculate(draft.DySpec(least), rules.verify.rejection, budget=nodes)


def dyspec_threshold(nodes: Nodes = 16, least: Annotated[float, Range(0.0005, 0.999)] = 0.05, depth: Few = 8) -> Method:
    """Every slot of value above `least`, a level per draft forward, under rejection."""
    return Speculate(draft.DySpecThreshold(least, depth), rules.verify.rejection, budget=nodes)


def either(least: Few = 2, nodes: Nodes = 16) -> Method:
    """A copy where the last `least` tokens stood before, else recycled tokens, under sample matching."""
    return Speculate(draft.Either(draft.Suffix(depth=nodes, least=least), draft.Recycle()), budget=nodes)


def escalate(sure: Share = 0.6, depth: Depth = 6) -> Method:
    """Tokens drawn from the small model, or from the draft model where it is not sure, under rejection."""
    return Speculate(draft.Escalate(sure, depth), rules.verify.rejection, budget=depth)


def forced(nodes: Nodes = 15) -> Method:
    """Forced tokens, copies and remembered laws in one tree, under sample matching; on a GPU what drafts there."""
    merged = draft.Merge(draft.Forced(), draft.Suffix(depth=nodes), draft.BigramRecycling())
    return Speculate(draft.DeviceFirst(merged), budget=nodes)


def heads(nodes: Nodes = 15) -> Method:
    """A tree of what the model's heads guess, under sample matching."""
    return Speculate(draft.Heads(), budget=nodes)


def jacobi(window: Annotated[int, Range(0, 256)] = 8) -> Method:
    """A sliding window of guesses under sample matching."""
    return Speculate(draft.Jacobi(draft.Slide(window)), budget=max(window, 1))


def likeliest(
    width: Texts = 4, depth: Few = 4, nodes: Nodes = 16, gain: Weight = 0.0
) -> Annotated[Method, Product(1024, "width", "depth")]:
    """The most probable paths of a draft model under sample matching."""
    return Speculate(draft.Likeliest(width, depth, gain), budget=nodes)


def lookahead(
    window: Few = 4, ngram: Annotated[int, Range(2, 16)] = 4, guesses: Annotated[int, Range(0, 64)] = 4
) -> Annotated[Method, Product(256, "window", "ngram"), Product(256, "guesses", "ngram")]:
    """Lookahead under sample matching."""
    lookahead = draft.Lookahead(window, ngram, guesses)
    return Speculate(lookahead, budget=lookahead.nodes)


def lookup(ngram: Ngram = 3, least: Ngram = 2, depth: Depth = 5) -> Method:
    """Prompt lookup under sample matching."""
    return Speculate(draft.Lookup(ngram, least, depth), budget=depth)


def masks(
    nodes: Annotated[int, Range(1, 128)] = 7, ahead: Annotated[int, Range(1, 16)] = 3
) -> Annotated[Method, Product(256, "nodes", "ahead")]:
    """Guesses behind masks, copies and remembered laws in one tree, under sample matching."""
    masks = draft.Masks(ahead, (draft.Suffix(depth=nodes), draft.BigramRecycling()))
    return Speculate(masks, budget=nodes + (nodes + 1) * ahead)  # below each node as many masks


def merge(nodes: Nodes = 31, memory: FileName = "") -> Method:
    """Copies and remembered laws in one tree, under sample matching."""
    merged = draft.Merge(draft.Suffix(depth=nodes), draft.BigramRecycling())
    return _kept(Speculate(draft.Prefilled(merged), budget=nodes), memory)


def on_device(nodes: Annotated[int, Range(3, 63)] = 31) -> Method:
    """Whatever the model drafts for itself, under sample matching."""
    return Speculate(draft.OnDevice(nodes), budget=nodes)


def pearl(depth: Depth = 4) -> Method:
    """A coupled chain under sample matching, the next one being drafted while it is checked."""
    return Speculate(draft.Pearl(depth), budget=depth)


def phrase(
    depth: Depth = 4,
    phrases: Annotated[int, Range(0, 64)] = 3,
    length: Few = 4,
    memory: FileName = "",
    by: Annotated[str, Choice(("pool", "chain"))] = "pool",
) -> Annotated[Method, Product(256, "phrases", "length")]:
    """A drafted chain with phrases below its end, under rejection; the pool, or nobody, drafts for its draft model."""
    kinds: dict[str, draft.Draft] = {"pool": draft.PooledChain(depth), "chain": draft.Chain(depth)}
    made = draft.Phrase(part("by", by, kinds), phrases, length)
    return _kept(Speculate(made, rules.verify.rejection, budget=depth + phrases * length), memory)


def prefilled(nodes: Nodes = 24, memory: FileName = "") -> Method:
    """Token recycling that starts with the prompt's rows, under sample matching."""
    return _kept(Speculate(draft.Prefilled(draft.Recycle()), budget=nodes), memory)


def raced(depth: Depth = 4) -> Method:
    """A raced chain under the race."""
    return Speculate(draft.Raced(depth), rules.verify.race, budget=depth)


def recycle(nodes: Nodes = 24, memory: FileName = "") -> Method:
    """Token recycling under sample matching."""
    return _kept(Speculate(draft.Recycle(), budget=nodes), memory)


def retrieve(
    store: FileName = "", project: FileName = "", nodes: Nodes = 16, favour: Annotated[float, Range(0.01, 100)] = 2.0
) -> Method:
    """Retrieval under sample matching, from files that `unspool store` makes; `project` counts `favour` times."""
    if not (store or project):
        raise BadRequest(
            "retrieve needs a store to draft from: make one with `unspool store FOLDER --out FILE`, then write "
            "retrieve:store=FILE (or project=FILE)"
        )
    general, own = (recipes.corpus.stored(path) if path else draft.Store() for path in (store, project))
    return recipes.corpus.stocked(draft.Retrieve(general, own, favour), nodes, store, project)


def rsd_c(widths: Annotated[tuple[int, ...], Numbers(Range(1, 64), 16)] = (3, 2, 1)) -> Method:
    """A tree of different siblings, a fixed number per level, under rejection."""
    return Speculate(draft.RSDC(widths), rules.verify.rejection, budget=64)


def rsd_s(width: Texts = 3, depth: Few = 4, nodes: Nodes = 12) -> Method:
    """A tree by stochastic beam search under rejection."""
    return Speculate(draft.RSDS(width, depth), rules.verify.rejection, budget=nodes)


def sequoia(
    nodes: Nodes = 16, depth: Few = 5, rate: Annotated[float, Range(0.001, 0.999)] = 0.7
) -> Annotated[Method, Product(2**16, "nodes", "nodes", "depth")]:
    """Sequoia's shape for siblings that each stand with `rate` once they are tried, under rejection."""
    if not 0 < rate < 1:
        raise BadRequest(f"sequoia:rate={rate} cannot be used; expected a rate between 0 and 1")
    rates = tuple(rate * (1 - rate) ** k for k in range(8))
    return Speculate(draft.Sequoia(rules.grow.sequoia(rates, nodes, depth)), rules.verify.rejection, budget=nodes)


def slem(depth: Depth = 6) -> Method:
    """Text of a draft model under sample matching."""
    return Speculate(draft.SLEM(depth), budget=3 * depth)


def slrs(depth: Depth = 4) -> Method:
    """A chain by strings under rejection."""
    return Speculate(draft.SLRS(depth), rules.verify.rejection, budget=depth)


def spechub(widths: Annotated[tuple[int, ...], Numbers(Range(1, 64), 16)] = (3, 2, 1)) -> Method:
    """A tree of the likeliest tokens and a drawn one, so many per level, under rejection."""
    return Speculate(draft.SpecHub(widths), rules.verify.rejection, budget=64)


def specinfer(paths: Texts = 3, depth: Few = 3) -> Annotated[Method, Product(512, "paths", "depth")]:
    """A drafted bunch under rejection."""
    return Speculate(draft.SpecInfer(paths, depth), rules.verify.rejection, budget=paths * depth)


def stand(
    widths: Annotated[tuple[int, ...], Numbers(Range(1, 64), 16)] = (3, 2, 1, 1),
    orders: Annotated[tuple[int, ...], Numbers(Range(1, 16), 8)] = (4, 3, 2),
    nodes: Nodes = 24,
    memory: FileName = "",
) -> Method:
    """Drawn n-gram trees under rejection; the texts of one call learn from each other, unless a scope is named."""
    made = Speculate(draft.Stand(widths, orders), rules.verify.rejection, budget=nodes)
    return recipes.memory.remembering(made, memory)


def suffix(depth: Depth = 16, least: Few = 1, pace: Annotated[int, Range(0, 256)] = 4, corpus: FileName = "") -> Method:
    """The suffix automaton of prompt and output, and of a store, under sample matching."""
    if corpus:
        return recipes.corpus.stocked(draft.Suffix(depth, least, pace, recipes.corpus.corpus(corpus)), depth, corpus)
    return Speculate(draft.Suffix(depth, least, pace), budget=depth)


def suffixtree(
    nodes: Nodes = 16, pace: Annotated[float, Range(0.001, 1000)] = 4.0, least: Share = 0.1, memory: FileName = ""
) -> Method:
    """A tree of counted suffixes under sample matching."""
    return _kept(Speculate(draft.SuffixTree(pace, least), budget=nodes), memory)


def surest(sure: Share = 0.6, depth: Depth = 6) -> Method:
    """The likeliest tokens of the small model, or of the draft model where it is not sure, under sample matching."""
    return Speculate(draft.Surest(sure, depth), budget=depth)


def tetris(inner: Annotated[str, Choice(SHARED)] = "chain", depth: Depth = 8, nodes: Nodes = 4) -> Method:
    """Drafts of `inner`, of which `nodes` on the mean of a batch are checked, by its own usual verifier."""
    kinds: dict[str, Callable[[], Speculate]] = {
        "chain": lambda: Speculate(draft.Chain(depth), rules.verify.rejection),
        "likeliest": lambda: Speculate(draft.Likeliest(4, depth)),
        "rsd_c": lambda: Speculate(draft.RSDC((2,) * min(depth, 3)), rules.verify.rejection),
        "suffix": lambda: Speculate(draft.Suffix(depth)),
        "recycle": lambda: Speculate(draft.Recycle()),
    }
    made = part("inner", inner, kinds)()
    return Speculate(draft.Tetris(made.draft, nodes), made.verify, budget=min(512, max(depth, 4 * nodes)))


def trigram(
    nodes: Nodes = 16,
    depth: Annotated[int, Range(1, 32)] = 4,
    rounds: Annotated[int, Range(1, 4096)] = 64,
    corpus: FileName = "",
    rollouts: Annotated[str, Choice(("best", "drawn"))] = "best",
    extended: Annotated[int, Range(0, 64)] = 0,
) -> Annotated[Method, Product(2**15, "depth", "rounds")]:
    """Adaptive trigrams under sample matching, from the request's own text and from a store."""
    kinds: dict[str, draft.Rollout] = {"best": draft.best_first_rollout, "drawn": draft.drawn_rollout}
    table = draft.trigrams(recipes.corpus.texts_of(corpus, "trigram")) if corpus else None
    made = draft.Trigram(depth, rounds, table, part("rollouts", rollouts, kinds), extended)
    return recipes.corpus.stocked(made, nodes, corpus) if corpus else Speculate(made, budget=nodes)


def _kept(method: Speculate, memory: str) -> Method:
    """The method with a memory in a file, if one is named."""
    return recipes.memory.remembering(method, memory) if memory else method
