"""A cache of prompt and answer that is renewed at intervals, and in between where it has changed most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from ...core.asks import Look
from ...core.canvas import Canvas
from ...core.claim import HEURISTIC, Method, claims
from ...core.field import Field
from ...core.option import CANVAS, LEVEL, SHARE, STEP
from ...core.warp.limits import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.unmask_blocks import blocks_of
from ...loops.unmasker import Rule
from ...loops.view import Viewing
from .confident import Confident


def build(
    threshold: Annotated[float, LEVEL] = 0.9,
    prompt: Annotated[int, STEP] = 100,
    answer: Annotated[int, STEP] = 7,
    renew: Annotated[float, SHARE] = 0.25,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look, over a cache that is renewed at intervals."""
    return Denoise(Confident(threshold), size, blocks_of(block), Interval(prompt, answer, renew))


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [build(threshold=0.6, prompt=3, answer=2, size=3)],
    build=build,
    paper="2506.06295",
    systems=("dLLM-Cache",),
)
@dataclass(frozen=True)
class Interval(Rule):
    """Compute the prompt at every `prompt`-th look, the answer at every `answer`-th, and in between a share of it.

    Places that are looked at are always computed; of the rest of the answer the share `renew` is, where values have
    changed most by their cosine. The paper also takes what is looked at from the cache and chooses anew in every layer;
    here it is chosen once, by the values of the second layer, as those of the first do not depend on other places.

    Claim: HEURISTIC; prompt 1 and answer 1 are no cache, and exact. The gap that is printed is that of the threshold:
    a table computes nothing, so nothing of it is old. Cost: per look, rows for the holes of the block and for the share
    of the answer, and the first layer for all of the answer.
    """

    prompt: int = 100
    answer: int = 7
    renew: float = 0.25

    def __post_init__(self) -> None:
        expect(whole(self.prompt, 1), "interval:prompt", self.prompt, "a whole number of looks from 1 on; usual is 100")
        expect(whole(self.answer, 1), "interval:answer", self.answer, "a whole number of looks from 1 on; usual is 7")
        expect(real(self.renew, 0, 1), "interval:renew", self.renew, "a share from 0 to 1; usual is 0.25")

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        """The first look."""
        return self.begin()(canvas, places)

    def begin(self) -> _Turn:
        """Nothing computed yet."""
        return _Turn(self)


@dataclass
class _Turn:
    """How many looks there were."""

    rule: Interval
    looks: int = 0

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        """One look, over what is not due."""
        prompt, answer = (self.looks % every == 0 for every in (self.rule.prompt, self.rule.answer))
        self.looks += 1
        start, end = canvas.prompt, len(canvas)
        due = {*(range(start) if prompt else ()), *(range(start, end) if answer else ())}
        fresh = None if prompt and answer else frozenset(due)
        field: Field = yield Look(canvas, tuple(places), fresh=fresh, renew=0.0 if answer else self.rule.renew)
        return field
