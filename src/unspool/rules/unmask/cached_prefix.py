"""A cache of all that stands before the block: computed once per block, and old from its second look on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...core.asks import Look
from ...core.canvas import Canvas, Field
from ...core.claim import HEURISTIC, claims
from ...loops.denoise import Denoise
from ...loops.unmasker import CachedView, FixedBlocks, Viewing
from .confident import Confident


@claims(
    HEURISTIC,
    name="cached_prefix",
    shaped=False,
    trials=lambda _: [Denoise(Confident(0.6), 3, FixedBlocks(3), CachedPrefix())],
    paper="2505.22618",
    systems=("Fast-dLLM (prefix cache)",),
)
@dataclass(frozen=True)
class CachedPrefix(CachedView):
    """Compute everything at the first look at a block, and then only what stands from the block on.

    Keys of the text before the block, the prompt among it, stay as they were when the block was blank.

    Claim: HEURISTIC; exact while nothing stands before the block, where every block needs one look, and on models that
    read what is left of the window from left to right. The gap that is printed is that of the threshold: a table
    computes nothing, so nothing of it is old. Cost: rows for the block and all behind it per look, but the first.
    """

    def begin(self) -> BlockCache:
        return BlockCache(lambda canvas: range(canvas.window[0], len(canvas)))


@dataclass
class BlockCache:
    """The block since whose first look only `fresh` places are computed."""

    fresh: Callable[[Canvas], range]
    window: tuple[int, int] | None = None

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        fresh = frozenset(self.fresh(canvas)) if canvas.window == self.window else None
        self.window = canvas.window
        field: Field = yield Look(canvas, tuple(places), fresh=fresh)
        return field
