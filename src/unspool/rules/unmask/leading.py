"""Left to right, as many at once as are sure one after the other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, level
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks, Rule


@claims(HEURISTIC, shaped=False, trials=lambda _: [Denoise(Leading(0.5), 3, FixedBlocks(32))])
@dataclass(frozen=True)
class Leading(Rule):
    """Fill the first hole, and those right behind it up to the first whose likeliest token has less than `threshold`.

    What stands never has a gap, so each hole is filled with all of its left side known, as a model that was made from
    one that reads has learnt it; a sure hole further on waits. It is what self-speculation accepts, without the check.

    Claim: HEURISTIC; above 1 it fills one hole at a time, left to right, and is exact. It loses where holes that are
    sure together are not the next ones. Cost: one look per run.
    """

    threshold: float = 0.9

    def __post_init__(self) -> None:
        expect(level(self.threshold), "leading:threshold", self.threshold, "a number; usual is 0.9")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        run = state.holes[:1]
        for i in state.holes[1:]:
            if i != run[-1] + 1 or state.peak(i).p < self.threshold:
                break
            run.append(i)
        return run
