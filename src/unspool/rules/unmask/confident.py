"""Every hole that is sure enough, at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from ...core.claim import HEURISTIC, Method, claims
from ...core.option import CANVAS, LEVEL
from ...core.warp.limits import expect, level
from ...loops.denoise import Denoise
from ...loops.sight import Sight
from ...loops.unmask_blocks import blocks_of
from ...loops.unmasker import Rule
from .certainty import CERTAINTY, Certainty, certainty_of, confidence, ranked


def build(
    threshold: Annotated[float, LEVEL] = 0.9,
    certainty: Annotated[str, CERTAINTY] = "confidence",
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look."""
    return Denoise(Confident(threshold, certainty_of(certainty)), size, blocks_of(block))


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [build(threshold=0.6, size=3)],
    build=build,
    paper="2505.22618",
    systems=("Fast-dLLM (threshold)",),
)
@dataclass(frozen=True)
class Confident(Rule):
    """Fill every hole whose most probable token has at least `threshold`, or the surest one if none has.

    Holes filled together are drawn as if they were independent; that is the gap. By the certainty `drawn` it is the
    token that was drawn that has to be sure, as in the paper's code; at temperature 0 that is the same.

    Claim: HEURISTIC; above 1 it fills one at a time and is exact. Cost: one look per group.
    """

    threshold: float = 0.9
    certainty: Certainty = confidence

    def __post_init__(self) -> None:
        expect(level(self.threshold), "confident:threshold", self.threshold, "a number; usual is 0.9")

    def __call__(self, sight: Sight) -> Collection[int]:
        """The sure holes, or the surest."""
        sure = [i for i in sight.holes if self.certainty(sight, i) >= self.threshold]
        return sure or ranked(sight, self.certainty)[:1]
