"""Every hole that is sure enough, at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, level
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks, Rule
from .certainty import Certainty, confidence, ranked


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Confident(0.6), 3, FixedBlocks(32))],
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

    def __call__(self, state: DenoiseState) -> Collection[int]:
        sure = [i for i in state.holes if self.certainty(state, i) >= self.threshold]
        return sure or ranked(state, self.certainty)[:1]
