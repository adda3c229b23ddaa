"""A cache of all that stands around the block, on both sides of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.asks import Look
from ...core.canvas import Canvas, Field
from ...core.claim import HEURISTIC, claims
from ...loops.denoise import Denoise
from ...loops.unmask_blocks import FixedBlocks
from ...loops.unmasker import StatefulRule, Viewing
from .confident import Confident


@claims(
    HEURISTIC,
    name="cached_dual",
    shaped=False,
    trials=lambda _: [Denoise(Confident(0.6), 3, FixedBlocks(3), CachedDual())],
    paper="2505.22618",
    systems=("Fast-dLLM (dual cache)",),
)
@dataclass(frozen=True)
class CachedDual(StatefulRule):
    """Compute everything at the first look at a block, and then only the block itself.

    The holes behind the block, too, stay as they were when the block was blank.

    Claim: HEURISTIC; exact where the block is the whole canvas or needs one look, and on models that read what is left
    of the window from left to right and do not see what is right of it. The gap that is printed is that of the
    threshold: a table computes nothing, so nothing of it is old. Cost: rows for the block per look, but the first.
    """

    def begin(self) -> _Around:
        return _Around()


@dataclass
class _Around:
    """The block whose surroundings are in the cache."""

    window: tuple[int, int] | None = None

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        fresh = frozenset(range(*canvas.window)) if canvas.window == self.window else None
        self.window = canvas.window
        field: Field = yield Look(canvas, tuple(places), fresh=fresh)
        return field
