"""Recipes of unmasking rules that say where and how is looked, and what of it is checked or taken back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated

from ..core.claim import Method
from ..core.option import CANVAS, LEVEL, SHARE, STEP, WEIGHT, Choice, Range, part
from ..loops.denoise import Denoise
from ..loops.unmask_blocks import blocks_of
from ..rules import unmask


def adaptive(
    threshold: Annotated[float, LEVEL] = 0.9,
    delimiter: Annotated[float, LEVEL] = 0.3,
    block: Annotated[int, Range(1, 1024)] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes above the threshold, in blocks that end with a line."""
    return Denoise(unmask.Confident(threshold), size, unmask.Adaptive(block, delimiter))


def cached_dual(
    threshold: Annotated[float, LEVEL] = 0.9, block: Annotated[int, CANVAS] = 32, size: Annotated[int, CANVAS] = 0
) -> Method:
    """All holes of a block above the threshold per look, over a cache of what is around it."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.CachedDual())


def cached_prefix(
    threshold: Annotated[float, LEVEL] = 0.9, block: Annotated[int, CANVAS] = 32, size: Annotated[int, CANVAS] = 0
) -> Method:
    """All holes of a block above the threshold per look, over a cached prefix."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.CachedPrefix())


def checked(
    cost: Annotated[float, Range(-math.inf, 1000)] = 1.0,
    least: Annotated[int, Range(1, 1024)] = 1,
    threshold: Annotated[float, LEVEL] = 0.9,
    block: Annotated[int, CANVAS] = 16,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """Blocks whose holes are filled by threshold, or checked by reading where that is worth its forward."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), check=unmask.CheckedUnmask(cost, least))


def context(
    weight: Annotated[float, WEIGHT] = 2.0,
    share: Annotated[float, SHARE] = 0.3,
    randomness: Annotated[float, WEIGHT] = 0.5,
    block: Annotated[int, CANVAS] = 0,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """One hole per look, guided by the prompt with some of its tokens masked."""
    return Denoise(unmask.Cooling(randomness), size, blocks_of(block), unmask.Context(weight, share))


def credited(
    threshold: Annotated[float, LEVEL] = 0.9,
    weight: Annotated[float, WEIGHT] = 0.7,
    decay: Annotated[float, Range(0, 0.999)] = 0.8,
    power: Annotated[float, WEIGHT] = 0.2,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look, after credit for earlier looks."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.Credited(weight, decay, power))


def cycle(
    threshold: Annotated[float, LEVEL] = 0.9,
    looks: Annotated[int, Range(0, 4096)] = 6,
    least: Annotated[float, LEVEL] = 0.3,
    steady: Annotated[float, LEVEL] = 1.0,
    block: Annotated[int, CANVAS] = 0,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes above the threshold, or the surest, first anywhere and then in the stretch that was found."""
    return Denoise(unmask.Confident(threshold), size, unmask.Cycle(looks, least, steady, block=block))


def delayed(
    threshold: Annotated[float, LEVEL] = 0.9,
    reload: Annotated[int, STEP] = 8,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look, over a delayed cache."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.Delayed(reload))


def early(
    early: Annotated[float, LEVEL] = 7.5,
    middle: Annotated[float, LEVEL] = 5.0,
    late: Annotated[float, LEVEL] = 2.5,
    threshold: Annotated[float, LEVEL] = math.inf,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """The surest hole of a block per look, until the gap lets all go; a threshold below 1 fills several."""
    return Denoise(unmask.Early(unmask.Confident(threshold), blocks_of(block), (early, middle, late)), size)


def edit(
    threshold: Annotated[float, LEVEL] = 0.95,
    edit: Annotated[float, LEVEL] = 0.9,
    passes: Annotated[int, Range(0, 4096)] = 16,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """Holes above one threshold are filled, tokens whose rival is above the other are replaced."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), remask=unmask.Edit(edit, passes))


def foreseen(
    threshold: Annotated[float, LEVEL] = 0.9,
    sure: Annotated[float, LEVEL] = 0.9,
    floor: Annotated[float, WEIGHT] = 0.5,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look, on a canvas that shrinks to the end of the text."""
    return Denoise(unmask.Confident(threshold), size, unmask.Foreseen(block, sure, floor))


def guided(
    scale: Annotated[float, WEIGHT] = 1.0,
    steps: Annotated[int, STEP] = 16,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "confidence",
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """So many looks per block, each guided by the prompt."""
    rule = unmask.Quota(steps, part("certainty", certainty, unmask.CERTAINTIES))
    return Denoise(rule, size, blocks_of(block), unmask.Guided(scale))


def interval(
    threshold: Annotated[float, LEVEL] = 0.9,
    prompt: Annotated[int, STEP] = 100,
    answer: Annotated[int, STEP] = 7,
    renew: Annotated[float, SHARE] = 0.25,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look, over a cache that is renewed at intervals."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.Interval(prompt, answer, renew))


def renoise(
    schedule: Annotated[str, Choice(("cap", "rescale", "loop", "conf"))] = "cap",
    steps: Annotated[int, STEP] = 128,
    eta: Annotated[float, Range(-1, 1)] = -1.0,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """The schedules cap, rescale, loop and conf, with the paper's η unless one is given."""
    own = {} if eta < 0 else {"eta": eta}
    kinds: Mapping[str, Callable[[], unmask.Noise]] = {
        "cap": lambda: unmask.Capped(steps, **own),
        "rescale": lambda: unmask.Rescaled(steps, **own),
        "loop": lambda: unmask.Looped(steps, **own),
        "conf": lambda: unmask.Even(steps),
    }
    noise = part("schedule", schedule, kinds)()
    remask = unmask.Doubtful(noise) if schedule == "conf" else unmask.Renoise(noise)
    return Denoise(unmask.Reverse(noise), size, view=unmask.Unchanged(), remask=remask)


def resample(
    looks: Annotated[int, Range(0, 4096)] = 10, block: Annotated[int, CANVAS] = 0, size: Annotated[int, CANVAS] = 0
) -> Method:
    """All holes at once, then everything again, so many times."""
    return Denoise(unmask.Confident(0.0), size, blocks_of(block), remask=unmask.Resample(looks))


def sliding(
    window: Annotated[int, Range(1, 1024)] = 16,
    entropy: Annotated[float, LEVEL] = 0.4,
    slope: Annotated[float, WEIGHT] = 0.02,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """The holes of the window with little entropy and little distance."""
    return Denoise(unmask.Near(entropy, slope), size, unmask.Sliding(window))


def softened(
    weight: Annotated[float, SHARE] = 0.15,
    refine: Annotated[float, LEVEL] = 0.1,
    settle: Annotated[float, LEVEL] = 0.1,
    looks: Annotated[int, Range(0, 4096)] = 20,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """Soft looks until the laws of a block come to rest, then the calmest hole per look, or all at rest."""
    return Denoise(unmask.Settled(settle), size, blocks_of(block), unmask.Softened(weight, refine, looks))


def windowed(
    threshold: Annotated[float, LEVEL] = 0.9,
    near: Annotated[int, Range(1, 1024)] = 16,
    far: Annotated[int, Range(1, 1024)] = 64,
    cycle: Annotated[int, STEP] = 32,
    block: Annotated[int, CANVAS] = 0,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All near holes above the threshold per look."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.Windowed(near, far, cycle))
