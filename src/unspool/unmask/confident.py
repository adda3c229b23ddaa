"""Every hole that is sure enough, at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..asks import Field
from ..canvas import Canvas
from ..chance import Chance
from ..claim import HEURISTIC, Method, claims


def build(threshold: float = 0.9, size: int = 64) -> Method:
    """All holes above the threshold per look."""
    from ..decode.denoise import Denoise

    return Denoise(Confident(threshold), size)


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

    def __call__(self, field: Field, canvas: Canvas, chance: Chance) -> Collection[int]:
        """The sure holes, or the surest."""
        sure = {i: law[law.best] for i, law in field.items()}
        return [i for i, p in sure.items() if p >= self.threshold] or [max(sure, key=lambda i: sure[i])]
