"""Every hole that is sure enough, at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..claim import HEURISTIC, Method, claims
from .blocks import blocks_of
from .sight import Sight


def build(threshold: float = 0.9, block: int = 32, size: int = 0) -> Method:
    """All holes of a block above the threshold per look."""
    from ..decode.denoise import Denoise

    return Denoise(Confident(threshold), size, blocks_of(block))


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [build(threshold=0.6, size=3)],
    build=build,
    paper="2505.22618",
    systems=("Fast-dLLM (threshold)",),
)
@dataclass(frozen=True)
class Confident:
    """Fill every hole whose most probable token has at least `threshold`, or the surest one if none has.

    Holes filled together are drawn as if they were independent; that is the gap.

    Claim: HEURISTIC; above 1 it fills one at a time and is exact. Cost: one look per group.
    """

    threshold: float = 0.9

    def __call__(self, sight: Sight) -> Collection[int]:
        """The sure holes, or the surest."""
        sure = {i: sight.peak(i).p for i in sight.holes}
        return [i for i, p in sure.items() if p >= self.threshold] or [max(sure, key=lambda i: sure[i])]
