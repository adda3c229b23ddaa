"""A window that slides over the holes: near ones are computed, further ones are seen as they were, the rest is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.asks import Look
from ...core.canvas import HOLE, Canvas, Field, Status
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, whole
from ...loops.denoise import Denoise
from ...loops.unmasker import CachedView, Viewing
from .confident import Confident


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Confident(0.6), 3, view=Windowed(1, 2, 2))],
    systems=("Window-Diffusion",),
)
@dataclass(frozen=True)
class Windowed(CachedView):
    """Compute the `near` leftmost holes and what was written since everything was computed last, every `cycle` looks.

    They see all tokens and the `far` leftmost holes, as those were computed last; holes beyond are not seen. Only near
    holes can be filled, but at a look that computes everything any can. Stopping as soon as an end of text is written
    is left to the stop.

    Claim: HEURISTIC; exact with cycle 1, or with `near` at least all holes if nothing but them was ever blank. The gap
    that is printed is that of the threshold and of what is near: a table computes nothing, so nothing of it is old.
    Cost: rows for `near` holes and the tokens of this cycle per look.
    """

    near: int = 16
    far: int = 64
    cycle: int = 32

    def __post_init__(self) -> None:
        expect(whole(self.near, 1), "windowed:near", self.near, "a whole number of holes from 1 on; usual is 16")
        expect(whole(self.far, self.near), "windowed:far", self.far, f"at least as many as near ({self.near})")
        expect(whole(self.cycle, 1), "windowed:cycle", self.cycle, "a whole number of looks from 1 on; usual is 32")

    def begin(self) -> _Phase:
        return _Phase(self)


@dataclass
class _Phase:
    """What stood when everything was computed last, and how many looks ago that was."""

    rule: Windowed
    tokens: tuple[int, ...] = ()
    looks: int = 0

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        if self.looks % self.rule.cycle == 0 or len(canvas) != len(self.tokens):
            self.tokens, self.looks = canvas.tokens, 1
            everything: Field = yield Look(canvas, tuple(places))
            return everything
        self.looks += 1
        holes = [i for i, status in enumerate(canvas.status) if status == Status.HOLE]
        near = [i for i in places if canvas.status[i] == Status.HOLE][: self.rule.near]
        written = [i for i, old in enumerate(self.tokens) if canvas.tokens[i] not in (HOLE, old)]
        at = sorted({*near, *(i for i in places if canvas.status[i] != Status.HOLE)})
        seen = {*range(len(canvas))}.difference(holes[self.rule.far :]).union(at)
        some: Field = yield Look(canvas, tuple(at), fresh=frozenset((*at, *written)), seen=frozenset(seen))
        return some
