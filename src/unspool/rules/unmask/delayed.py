"""A cache of tokens that begins one look after they were written, when their keys have come to rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.asks import Look
from ...core.canvas import HOLE, Canvas, Field
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, whole
from ...loops.denoise import Denoise
from ...loops.unmasker import CachedView, FixedBlocks, Viewing
from .confident import Confident


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Confident(0.6), 3, FixedBlocks(32), Delayed(2))],
    paper="2505.15781",
    systems=("dKV-Cache (decode)",),
)
@dataclass(frozen=True)
class Delayed(CachedView):
    """Compute the holes and what was written by the last look; take all older tokens, and the prompt, from the cache.

    Keys change most when a hole becomes a token, so a token's keys are kept only from the look after that. Everything
    is computed anew at the first two looks at a block and at every `reload`-th. The variant that needs to know the
    order beforehand (greedy) is not built.

    Claim: HEURISTIC; reload 1 is no cache, and exact. The gap that is printed is that of the threshold: a table
    computes nothing, so nothing of it is old. Cost: rows for all holes of the canvas and for the last few tokens per
    look; it saves little while most of a canvas is blank.
    """

    reload: int = 8

    def __post_init__(self) -> None:
        expect(
            whole(self.reload, 1), "delayed:reload", self.reload, "a whole number of looks from 1 on; usual is 4 to 16"
        )

    def begin(self) -> _Settling:
        return _Settling(self)


@dataclass
class _Settling:
    """What stood at the last look, and how many looks the block has had."""

    rule: Delayed
    window: tuple[int, int] | None = None
    tokens: tuple[int, ...] = ()
    looks: int = 0

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        if canvas.window != self.window or len(canvas) != len(self.tokens):
            self.window, self.looks = canvas.window, 0
        fresh = None
        if self.looks > 1 and self.looks % self.rule.reload:
            new = (i for i, old in enumerate(self.tokens) if HOLE in (canvas.tokens[i], old) or canvas.tokens[i] != old)
            fresh = frozenset(new)
        self.tokens, self.looks = canvas.tokens, self.looks + 1
        field: Field = yield Look(canvas, tuple(places), fresh=fresh)
        return field
