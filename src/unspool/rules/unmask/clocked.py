"""Every hole that is sure enough, or else what a clock says that runs with the holes that are left."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Rule
from .certainty import Certainty, confidence, foremost
from .quota import writable
from .timed import LAST, ROUNDING, time


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Clocked(0.7, 2), 3)],
    paper="2505.16990",
    systems=("Dimple (confident decoding)",),
)
@dataclass(frozen=True)
class Clocked(Rule):
    """Fill all holes with p > `threshold`; if none has, as many as the next step of time would.

    The time is the share of holes that are left, t = |M|/N, so that it keeps up with what was filled ahead of it. The
    next step leads to the first time s < t of the `steps` equal ones at which ⌊|M|·(1 − s/t)⌋ ≥ 1 holes are filled, the
    surest by `certainty`; the last fills all. p is the model's own, before warps.

    Claim: HEURISTIC; from threshold 1 on only the clock is left. It loses with few steps, whose groups are filled
    however unsure they are. Cost: one look per group.
    """

    threshold: float = 0.95
    steps: int = 16
    certainty: Certainty = confidence
    last: float = LAST

    def __post_init__(self) -> None:
        expect(real(self.threshold, 0), "clocked:threshold", self.threshold, "a probability; usual is 0.95")
        expect(whole(self.steps, 1), "clocked:steps", self.steps, "a whole number of steps from 1 on")
        expect(real(self.last, 0, 1), "clocked:last", self.last, "a time from 0 to 1; usual is 0.001")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        sure = [i for i in state.holes if state.peak(i).p > self.threshold]
        return sure or foremost(state, self.certainty, self._due(len(state.holes), writable(state.canvas)))

    def _due(self, left: int, size: int) -> int:
        """How many of the holes that are left the next step that fills any would fill."""
        now = left / size
        for step in range(1, self.steps):
            due = math.floor(left * (1 - time(step, self.steps, self.last) / now) + ROUNDING)
            if due >= 1:
                return due
        return left
