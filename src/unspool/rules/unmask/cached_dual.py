"""A cache of all that stands around the block, on both sides of it."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...loops.denoise import Denoise
from ...loops.unmasker import CachedView, FixedBlocks
from .cached_prefix import BlockCache
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
class CachedDual(CachedView):
    """Compute everything at the first look at a block, and then only the block itself.

    The holes behind the block, too, stay as they were when the block was blank.

    Claim: HEURISTIC; exact where the block is the whole canvas or needs one look, and on models that read what is left
    of the window from left to right and do not see what is right of it. The gap that is printed is that of the
    threshold: a table computes nothing, so nothing of it is old. Cost: rows for the block per look, but the first.
    """

    def begin(self) -> BlockCache:
        return BlockCache(lambda canvas: range(*canvas.window))
