"""Recipes of unmasking rules that say where and how is looked, and what of it is checked or taken back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated

from ..core.claim import Method
from ..core.option import MODEL, Block, Choice, Holes, Level, Range, Share, Span, Steps, Weight, part
from ..loops.denoise import Denoise
from ..loops.unmasker import blocks_of
from ..rules import unmask


def adaptive(threshold: Level = 0.9, delimiter: Level = 0.3, block: Block = MODEL, size: Holes = 0) -> Method:
    """All holes above the threshold, in blocks that end with a line."""
    return Denoise(unmask.Confident(threshold), size, unmask.Adaptive(block, delimiter))


def cached_dual(threshold: Level = 0.9, block: Block = MODEL, size: Holes = 0) -> Method:
    """All holes of a block above the threshold per look, over a cache of what is around it."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.CachedDual())


def cached_prefix(threshold: Level = 0.9, block: Block = MODEL, size: Holes = 0) -> Method:
    """All holes of a block above the threshold per look, over a cached prefix."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.CachedPrefix())


def checked(
    cost: Annotated[float, Range(-math.inf, 1000)] = 1.0,
    least: Span = 1,
    route: Annotated[str, Choice(tuple(unmask.ROUTES))] = "static",
    threshold: Level = 0.9,
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """Blocks whose holes are filled by threshold, or checked by reading where that is worth its forward."""
    kind = part("route", route, unmask.ROUTES)
    check = unmask.CheckedUnmask(kind() if route == "bandit" else kind(cost), least)
    return Denoise(unmask.Confident(threshold), size, blocks_of(block, 16), check=check)


def context(
    weight: Weight = 2.0, share: Share = 0.3, randomness: Weight = 0.5, block: Block = 0, size: Holes = 0
) -> Method:
    """One hole per look, guided by the prompt with some of its tokens masked."""
    return Denoise(unmask.Cooling(randomness), size, blocks_of(block), unmask.Context(weight, share))


def credited(
    threshold: Level = 0.9,
    weight: Weight = 0.7,
    decay: Annotated[float, Range(0, 0.999)] = 0.8,
    power: Weight = 0.2,
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """All holes of a block above the threshold per look, after credit for earlier looks."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.Credited(weight, decay, power))


def cycle(
    threshold: Level = 0.9,
    looks: Annotated[int, Range(0, 4096)] = 6,
    least: Level = 0.3,
    steady: Level = 1.0,
    block: Block = 0,
    size: Holes = 0,
) -> Method:
    """All holes above the threshold, or the surest, first anywhere and then in the stretch that was found."""
    return Denoise(unmask.Confident(threshold), size, unmask.Cycle(looks, least, steady, block=block))


def delayed(threshold: Level = 0.9, reload: Steps = 8, block: Block = MODEL, size: Holes = 0) -> Method:
    """All holes of a block above the threshold per look, over a delayed cache."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.Delayed(reload))


def early(
    early: Level = 7.5,
    middle: Level = 5.0,
    late: Level = 2.5,
    threshold: Level = math.inf,
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """The surest hole of a block per look, until the gap lets all go; a threshold below 1 fills several."""
    return Denoise(unmask.Early(unmask.Confident(threshold), blocks_of(block), (early, middle, late)), size)


def edit(
    threshold: Level = 0.95,
    edit: Level = 0.9,
    passes: Annotated[int, Range(0, 4096)] = 16,
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """Holes above one threshold are filled, tokens whose rival is above the other are replaced."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), remask=unmask.Edit(edit, passes))


def foreseen(
    threshold: Level = 0.9, sure: Level = 0.9, floor: Weight = 0.5, block: Block = MODEL, size: Holes = 0
) -> Method:
    """All holes of a block above the threshold per look, on a canvas that shrinks to the end of the text."""
    return Denoise(unmask.Confident(threshold), size, unmask.Foreseen(block, sure, floor))


def guided(
    scale: Weight = 1.0,
    steps: Steps = 16,
    certainty: Annotated[str, Choice(tuple(unmask.CERTAINTIES))] = "confidence",
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """So many looks per block, each guided by the prompt."""
    rule = unmask.Quota(steps, part("certainty", certainty, unmask.CERTAINTIES))
    return Denoise(rule, size, blocks_of(block), unmask.Guided(scale))


def interval(
    threshold: Level = 0.9,
    prompt: Steps = 100,
    answer: Steps = 7,
    renew: Share = 0.25,
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """All holes of a block above the threshold per look, over a cache that is renewed at intervals."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.Interval(prompt, answer, renew))


def renoise(
    schedule: Annotated[str, Choice(("cap", "rescale", "loop", "conf"))] = "cap",
    steps: Steps = 128,
    eta: Annotated[float, Range(-1, 1)] = -1.0,
    size: Holes = 0,
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


def resample(looks: Annotated[int, Range(0, 4096)] = 10, block: Block = 0, size: Holes = 0) -> Method:
    """All holes at once, then everything again, so many times."""
    return Denoise(unmask.Confident(0.0), size, blocks_of(block), remask=unmask.Resample(looks))


def sliding(window: Span = 16, entropy: Level = 0.4, slope: Weight = 0.02, size: Holes = 0) -> Method:
    """The holes of the window with little entropy and little distance."""
    return Denoise(unmask.Near(entropy, slope), size, unmask.Sliding(window))


def softened(
    weight: Share = 0.15,
    refine: Level = 0.1,
    settle: Level = 0.1,
    looks: Annotated[int, Range(0, 4096)] = 20,
    block: Block = MODEL,
    size: Holes = 0,
) -> Method:
    """Soft looks until the laws of a block come to rest, then the calmest hole per look, or all at rest."""
    return Denoise(unmask.Settled(settle), size, blocks_of(block), unmask.Softened(weight, refine, looks))


def windowed(
    threshold: Level = 0.9, near: Span = 16, far: Span = 64, cycle: Steps = 32, block: Block = 0, size: Holes = 0
) -> Method:
    """All near holes above the threshold per look."""
    return Denoise(unmask.Confident(threshold), size, blocks_of(block), unmask.Windowed(near, far, cycle))
