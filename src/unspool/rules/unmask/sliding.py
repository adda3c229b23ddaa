"""A window of holes that slides along the text."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.canvas import Canvas
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, level, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Cutting


@claims(HEURISTIC, shaped=False, trials=lambda _: [Denoise(Near(0.8, 0.1), 3, Sliding(2))], systems=("WeDLM",))
@dataclass(frozen=True)
class Sliding(Cutting):
    """A window of places from the first open one on; nothing beyond it is looked at, nor seen.

    What is filled without a gap leaves the window on the left, and as many holes come in on the right. How the filled
    places are laid out for a causal model is the runner's business.

    Claim: HEURISTIC; a window of 1 is left to right and exact. It loses where the first hole of the window stays unsure
    and holds all others up. Cost: one look per step, over the text and the window.
    """

    size: int = 16

    def __post_init__(self) -> None:
        expect(whole(self.size, 1), "sliding:window", self.size, "a window of at least 1")

    def __call__(self, canvas: Canvas) -> Canvas:
        low = canvas.settled
        high = min(low + self.size, len(canvas))
        return canvas.cut(high).within(low, high)


@dataclass(frozen=True)
class Near:
    """Fill every hole with H + `slope`·(distance from the first hole) < `threshold`, else the one with the least."""

    threshold: float = 0.4
    slope: float = 0.02

    def __post_init__(self) -> None:
        expect(level(self.threshold), "sliding:entropy", self.threshold, "a number of nats; usual is 0.4")
        expect(real(self.slope, 0), "sliding:slope", self.slope, "a number from 0 on")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        first = state.holes[0]
        cost = {i: state.peak(i).entropy + self.slope * (i - first) for i in state.holes}
        return [i for i, c in cost.items() if c < self.threshold] or [min(cost, key=lambda i: cost[i])]
