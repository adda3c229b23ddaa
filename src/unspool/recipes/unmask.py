"""Recipes of unmasking rules that say which holes are filled at each look."""

from __future__ import annotations

from typing import Annotated

from ..core.claim import Method
from ..core.errors import BadRequest
from ..core.option import CANVAS, FILE, LEVEL, STEP, WEIGHT, Choice, Range, part
from ..loops.denoise import Denoise
from ..loops.unmask_blocks import FixedBlocks, blocks_of
from ..loops.view import View, look
from ..rules import unmask


def ancestral(
    steps: Annotated[int, STEP] = 64, block: Annotated[int, CANVAS] = 0, size: Annotated[int, CANVAS] = 0
) -> Method:
    """As many steps of time as told, for the whole canvas or for each block."""
    return Denoise(unmask.Ancestral(steps), size, blocks_of(block))


def annealed(
    steps: Annotated[int, STEP] = 12,
    heat: Annotated[float, WEIGHT] = 4.5,
    schedule: Annotated[str, Choice(tuple(unmask.SCHEDULES))] = "cosine",
    block: Annotated[int, CANVAS] = 0,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """So many looks at the whole canvas, or at each block."""
    rule = unmask.Annealed(steps, heat, part("schedule", schedule, unmask.SCHEDULES))
    return Denoise(rule, size, blocks_of(block))


def clocked(
    threshold: Annotated[float, Range(0, 10_000)] = 0.95,
    steps: Annotated[int, STEP] = 16,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "confidence",
    block: Annotated[int, CANVAS] = 0,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes above the threshold per look, or as many as the time that is left asks for."""
    rule = unmask.Clocked(threshold, steps, part("certainty", certainty, unmask.CERTAINTIES))
    return Denoise(rule, size, blocks_of(block))


def confident(
    threshold: Annotated[float, LEVEL] = 0.9,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "confidence",
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look."""
    rule = unmask.Confident(threshold, part("certainty", certainty, unmask.CERTAINTIES))
    return Denoise(rule, size, blocks_of(block))


def cooling(
    randomness: Annotated[float, WEIGHT] = 0.5, block: Annotated[int, CANVAS] = 0, size: Annotated[int, CANVAS] = 0
) -> Method:
    """One hole per look, the more at random the earlier."""
    return Denoise(unmask.Cooling(randomness), size, blocks_of(block))


def dynamic(
    threshold: Annotated[float, Range(-10_000, 10_000)] = 0.9,
    steps: Annotated[int, STEP] = 4,
    block: Annotated[int, CANVAS] = 4,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold, and at least so many that `steps` looks are enough for it."""
    return Denoise(unmask.Dynamic(threshold, steps), size, blocks_of(block))


def entropy_bound(
    budget: Annotated[float, WEIGHT] = 0.15,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "entropy",
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """The calmest holes of a block per look, within a budget in nats."""
    rule = unmask.EntropyBound(budget, part("certainty", certainty, unmask.CERTAINTIES))
    return Denoise(rule, size, blocks_of(block))


def explore(
    threshold: Annotated[float, Range(-10_000, 10_000)] = 0.9,
    block: Annotated[int, Range(1, 1024)] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of the canvas above the threshold per look, and the least certain one of a block that has none."""
    return Denoise(unmask.Explore(threshold, block), size)


def factor(
    factor: Annotated[float, WEIGHT] = 1.0, block: Annotated[int, CANVAS] = 32, size: Annotated[int, CANVAS] = 0
) -> Method:
    """The surest holes of a block per look, the more the surer they are."""
    return Denoise(unmask.Factor(factor), size, blocks_of(block))


def filtered(
    file: Annotated[str, FILE] = "", threshold: Annotated[float, LEVEL] = 0.9, size: Annotated[int, CANVAS] = 0
) -> Method:
    """A filter from a file, in blocks of its own size."""
    if not file:
        raise BadRequest(
            "filtered needs a trained filter: filtered:file=PATH; unspool_train.filter makes one from a model and some "
            "prompts"
        )
    net = unmask.Filter.load(file)
    return Denoise(unmask.Filtered(net, net.size, threshold), size, FixedBlocks(net.size))


def hierarchy(
    threshold: Annotated[float, Range(-10_000, 10_000)] = 0.9,
    low: Annotated[float, Range(-10_000, 10_000)] = 0.4,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look, and the surest of each run above the low one."""
    return Denoise(unmask.Hierarchy(threshold, low), size, blocks_of(block))


def local(
    threshold: Annotated[float, Range(-10_000, 10_000)] = 0.9,
    relaxed: Annotated[float, Range(-10_000, 10_000)] = 0.75,
    radius: Annotated[int, Range(0, 1024)] = 4,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look, and near them those above the relaxed one."""
    return Denoise(unmask.Local(threshold, relaxed, radius), size, blocks_of(block))


def one(block: Annotated[int, CANVAS] = 0, size: Annotated[int, CANVAS] = 0) -> Method:
    """One random hole per look."""
    return Denoise(unmask.one, size, blocks_of(block))


def peaked(
    nats: Annotated[float, WEIGHT] = 0.5, block: Annotated[int, CANVAS] = 32, size: Annotated[int, CANVAS] = 0
) -> Method:
    """All calm holes of a block per look."""
    return Denoise(unmask.Peaked(nats), size, blocks_of(block))


def quota(
    steps: Annotated[int, STEP] = 16,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "confidence",
    ends: Annotated[str, Choice(("any", "late", "never"))] = "any",
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
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
    threshold: Annotated[float, Range(-10_000, 10_000)] = 0.9,
    cluster: Annotated[float, Range(-10_000, 10_000)] = 0.8,
    span: Annotated[int, Range(1, 1024)] = 3,
    known: Annotated[int, Range(0, 1024)] = 1,
    steady: Annotated[float, Range(-10_000, 10_000)] = 0.8,
    streak: Annotated[int, Range(1, 1024)] = 3,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look, and those that are redundant."""
    return Denoise(unmask.Redundant(threshold, cluster, span, known, steady, streak), size, blocks_of(block))


def stable(
    threshold: Annotated[float, Range(-10_000, 10_000)] = 0.9,
    drift: Annotated[float, Range(0, 1000, endless=True)] = 0.01,
    history: Annotated[int, Range(0, 1024)] = 2,
    steps: Annotated[int, STEP] = 64,
    block: Annotated[int, CANVAS] = 64,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block that are sure and stable, or as many as its turn of `steps` looks asks for."""
    return Denoise(unmask.Stable(threshold, drift, history, steps), size, blocks_of(block))


def timed(
    steps: Annotated[int, STEP] = 16,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "entropy",
    heat: Annotated[float, WEIGHT] = 0.0,
    block: Annotated[int, CANVAS] = 0,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """As many steps of time as told, for the whole canvas or for each block."""
    rule = unmask.Timed(steps, part("certainty", certainty, unmask.CERTAINTIES), heat)
    return Denoise(rule, size, blocks_of(block))
