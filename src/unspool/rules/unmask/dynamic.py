"""Every hole that is sure enough, but never fewer than a quota."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks
from .certainty import confidence, foremost
from .quota import quota


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Dynamic(0.6, 2), 3, FixedBlocks(3))],
    paper="2510.06303",
    systems=("SDAR (low_confidence_dynamic)", "LLaDA2.0 (threshold)"),
)
@dataclass(frozen=True)
class Dynamic:
    """Fill every hole with p ≥ `threshold` if these are at least the quota of this look, else the surest up to it.

    The quota is n // steps of the n holes of a block, one more at the first n mod steps looks.

    Claim: HEURISTIC; with threshold > 1 it is `quota`, with steps ≥ n `confident`. It loses like both: where a quota
    forces a guess, and where sure holes depend on each other. Cost: at most `steps` looks per block.
    """

    threshold: float = 0.9
    steps: int = 4

    def __post_init__(self) -> None:
        expect(real(self.threshold), "dynamic:threshold", self.threshold, "a probability; usual is 0.85 to 0.95")
        expect(whole(self.steps, 1), "dynamic:steps", self.steps, "a whole number of looks per block from 1 on")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        least = quota(state.canvas, self.steps)
        sure = [i for i in state.holes if state.peak(i).p >= self.threshold]
        return sure if len(sure) >= least else foremost(state, confidence, least)
