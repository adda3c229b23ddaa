"""A cache of prompt and answer that is renewed at intervals, and in between where it has changed most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.asks import Look
from ...core.canvas import Canvas, Field
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.unmasker import CachedView, FixedBlocks, Viewing
from .confident import Confident


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Confident(0.6), 3, FixedBlocks(32), Interval(3, 2))],
    paper="2506.06295",
    systems=("dLLM-Cache",),
)
@dataclass(frozen=True)
class Interval(CachedView):
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

    def begin(self) -> _Looks:
        return _Looks(self)


@dataclass
class _Looks:
    """How many looks there were."""

    rule: Interval
    looks: int = 0

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        prompt, answer = (self.looks % every == 0 for every in (self.rule.prompt, self.rule.answer))
        self.looks += 1
        start, end = canvas.prompt, len(canvas)
        due = {*(range(start) if prompt else ()), *(range(start, end) if answer else ())}
        fresh = None if prompt and answer else frozenset(due)
        field: Field = yield Look(canvas, tuple(places), fresh=fresh, renew=0.0 if answer else self.rule.renew)
        return field
