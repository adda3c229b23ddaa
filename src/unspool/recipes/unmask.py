"""Recipes of unmasking rules that say which holes are filled at each look."""

from __future__ import annotations

from typing import Annotated

from ..core import files
from ..core.claim import Method
from ..core.errors import BadRequest
from ..core.option import MODEL, Block, Choice, FileName, Holes, Level, Range, Span, Steps, Threshold, Weight, part
from ..loops.denoise import Denoise
from ..loops.unmasker import FixedBlocks, View, blocks_of, look
from ..rules import unmask


def ancestral(steps: Steps = 64, block: Block = 0, size: Holes = 0) -> Method:
    """As many steps of time as told, for the whole canvas or for each block."""
    return Denoise(unmask.Ancestral(steps), size, blocks_of(block))


def annealed(
    steps: Steps = 12,
    heat: Weight = 4.5,
    schedule: Annotated[str, Choice(tuple(unmask.SCHEDULES))] = "cosine",
    block: Block = 0,
    size: Holes = 0,
) -> Method:
    """So many looks at the whole canvas, or at each block."""
    rule = unmask.Annealed(steps, heat, part("schedule", schedule, unmask.SCHEDULES))
    return Denoise(rule, size, blocks_of(block))


def clocked(
    threshold: Annotated[float, Range(0, 10_000)] = 0.95,
    steps: Steps = 16,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "confidence",
    block: Block = 0,
    size: Holes = 0,
) -> Method:
    """All holes above the threshold per look, or as many as the time that is left asks for."""
    rule = unmask.Clocked(threshold, steps, part("certainty", certainty, unmask.CERTAINTIES))
    return Denoise(rule, size, blocks_of(block))


def confident(
    threshold: Level = 0.9,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "confidence",
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """All holes of a block above the threshold per look."""
    rule = unmask.Confident(threshold, part("certainty", certainty, unmask.CERTAINTIES))
    return Denoise(rule, size, blocks_of(block))


def cooling(randomness: Weight = 0.5, block: Block = 0, size: Holes = 0) -> Method:
    """One hole per look, the more at random the earlier."""
    return Denoise(unmask.Cooling(randomness), size, blocks_of(block))


def dynamic(threshold: Threshold = 0.9, steps: Steps = 4, block: Block = MODEL, size: Holes = 0) -> Method:
    """All holes of a block above the threshold, and at least so many that `steps` looks are enough for it."""
    return Denoise(unmask.Dynamic(threshold, steps), size, blocks_of(block, 4))


def entropy_bound(
    budget: Weight = 0.15,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "entropy",
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """The calmest holes of a block per look, within a budget in nats."""
    rule = unmask.EntropyBound(budget, part("certainty", certainty, unmask.CERTAINTIES))
    return Denoise(rule, size, blocks_of(block))


def explore(
    threshold: Threshold = 0.9, candidates: Annotated[int, Range(1, 16)] = 1, block: Span = 32, size: Holes = 0
) -> Method:
    """All holes of the canvas above the threshold per look, and the least certain one of a block that has none.

    With several candidates, the token there after which most is sure.
    """
    check = unmask.TriedCandidates(threshold, candidates) if candidates > 1 else None
    return Denoise(unmask.Explore(threshold, block), size, check=check)


def factor(factor: Weight = 1.0, block: Block = MODEL, size: Holes = 0) -> Method:
    """The surest holes of a block per look, the more the surer they are."""
    return Denoise(unmask.Factor(factor), size, blocks_of(block))


def filtered(file: FileName = "", threshold: Level = 0.9, size: Holes = 0) -> Method:
    """A filter from a file, or else the one that was trained for smollm2-diffusion, in blocks of its own size."""
    known = file or files.trained(files.FILTERS, "smollm2-diffusion.safetensors")
    if known is None:
        raise BadRequest(
            "filtered needs a trained filter: unspool-weights has one (pip install ./packages/weights), and "
            "`unspool train filter` makes one from a model and some prompts, for filtered:file=PATH"
        )
    net = unmask.Filter.load(known)
    return Denoise(unmask.Filtered(net, net.size, threshold), size, FixedBlocks(net.size))


def hierarchy(threshold: Threshold = 0.9, low: Threshold = 0.4, block: Block = MODEL, size: Holes = 0) -> Method:
    """All holes of a block above the threshold per look, and the surest of each run above the low one."""
    return Denoise(unmask.Hierarchy(threshold, low), size, blocks_of(block))


def leading(threshold: Level = 0.9, block: Block = MODEL, size: Holes = 0) -> Method:
    """The first hole of a block per look, and the sure ones right behind it."""
    return Denoise(unmask.Leading(threshold), size, blocks_of(block))


def local(
    threshold: Threshold = 0.9,
    relaxed: Threshold = 0.75,
    radius: Annotated[int, Range(0, 1024)] = 4,
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """All holes of a block above the threshold per look, and near them those above the relaxed one."""
    return Denoise(unmask.Local(threshold, relaxed, radius), size, blocks_of(block))


def one(block: Block = 0, size: Holes = 0) -> Method:
    """One random hole per look."""
    return Denoise(unmask.one, size, blocks_of(block))


def peaked(nats: Weight = 0.5, block: Block = MODEL, size: Holes = 0) -> Method:
    """All calm holes of a block per look."""
    return Denoise(unmask.Peaked(nats), size, blocks_of(block))


def quota(
    steps: Steps = 16,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "confidence",
    ends: Annotated[str, Choice(("any", "late", "never"))] = "any",
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """So many looks per block; an end of text may come any time, late (when no other hole is left), or never."""
    order = part("certainty", certainty, unmask.CERTAINTIES)
    ways: dict[str, tuple[unmask.Certainty, View]] = {
        "any": (order, look),
        "late": (unmask.Late(order), look),
        "never": (order, unmask.Endless()),
    }
    order, view = part("ending", ends, ways)
    return Denoise(unmask.Quota(steps, order), size, blocks_of(block), view)


def redundant(
    threshold: Threshold = 0.9,
    cluster: Threshold = 0.8,
    span: Span = 3,
    known: Annotated[int, Range(0, 1024)] = 1,
    steady: Threshold = 0.8,
    streak: Span = 3,
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """All holes of a block above the threshold per look, and those that are redundant."""
    return Denoise(unmask.Redundant(threshold, cluster, span, known, steady, streak), size, blocks_of(block))


def stable(
    threshold: Threshold = 0.9,
    drift: Annotated[float, Range(0, 1000, endless=True)] = 0.01,
    history: Annotated[int, Range(0, 1024)] = 2,
    steps: Steps = 64,
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """All holes of a block that are sure and stable, or as many as its turn of `steps` looks asks for."""
    return Denoise(unmask.Stable(threshold, drift, history, steps), size, blocks_of(block, 64))


def timed(
    steps: Steps = 16,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "entropy",
    heat: Weight = 0.0,
    block: Block = 0,
    size: Holes = 0,
) -> Method:
    """As many steps of time as told, for the whole canvas or for each block."""
    rule = unmask.Timed(steps, part("certainty", certainty, unmask.CERTAINTIES), heat)
    return Denoise(rule, size, blocks_of(block))
