"""A fixed number of looks per block: so many holes each, the surest first."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.canvas import Canvas, Status
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks, Rule
from .certainty import Certainty, confidence, foremost, random


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Quota(2), 3, FixedBlocks(32)), Denoise(Quota(2, random), 3, FixedBlocks(32))],
    paper="2502.09992",
    systems=("LLaDA (low-confidence remasking)", "SDAR (low_confidence_static, sequential)"),
)
@dataclass(frozen=True)
class Quota(Rule):
    """Fill the holes of a block in `steps` looks: n // steps of its n at each, one more at the first n mod steps.

    The surest by `certainty` come first. "Remasking" in the paper means not filling: what is filled stays. The paper's
    low-confidence order is `drawn`, the probability of the token that was drawn; at temperature 0 that is the same as
    `confidence`, which looks at laws alone and so leaves single tokens as they would have been drawn anyway.

    Claim: HEURISTIC; with steps ≥ n it fills one at a time and is exact, unless by `drawn`. It loses where certain
    holes have to wait for their turn, and where dependent ones have not the time to. Cost: `steps` looks per block.
    """

    steps: int = 16
    certainty: Certainty = confidence

    def __post_init__(self) -> None:
        expect(whole(self.steps, 1), "quota:steps", self.steps, "a whole number of looks per block from 1 on")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        return foremost(state, self.certainty, quota(state.canvas, self.steps))


def quota(canvas: Canvas, steps: int) -> int:
    """How many holes of the window the next look fills if `steps` are to fill them all; at least one."""
    n = writable(canvas)
    return max(1, n // steps + (looks(canvas) < n % steps))


def writable(canvas: Canvas) -> int:
    """How many places of the window were not given."""
    low, high = canvas.window
    return sum(status != Status.GIVEN for status in canvas.status[low:high])


def looks(canvas: Canvas) -> int:
    """How many looks have filled something of the window that still stands."""
    low, high = canvas.window
    return len({step for step in canvas.filled[low:high] if step >= 0})
