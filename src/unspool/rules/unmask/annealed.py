"""As many holes stay open as a schedule says, and the noise in the order of filling cools down."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from .certainty import foremost
from .quota import looks, writable

Schedule: TypeAlias = Callable[[float, int], float]
"""The share of n holes that is still open when the share r of all looks is over; from 1 at r = 0 to 0 at r = 1."""

SCHEDULES: Mapping[str, Schedule] = {
    "cosine": lambda r, n: math.cos(math.pi * r / 2),
    "uniform": lambda r, n: 1 - r,
    "square": lambda r, n: 1 - r**2,
    "cubic": lambda r, n: 1 - r**3,
    "log": lambda r, n: -math.log(r) / math.log(max(n, 2)),
    "exp": lambda r, n: 1 - n ** (r - 1),
}


@claims(
    HEURISTIC, shaped=False, trials=lambda _: [Denoise(Annealed(2, 0), 3)], paper="2202.04200", systems=("MaskGIT",)
)
@dataclass(frozen=True)
class Annealed:
    """Draw in every hole, and after look t of T keep all but ⌊N·schedule(t/T)⌋, by ln p(x̂) + heat·(1 − t/T)·Gumbel.

    Of the N holes at least one is filled at every look and at least one left for the last, which fills all. What is
    kept stays. Picking after such noise is drawing without replacement ∝ p(x̂)^(1/(heat·(1 − t/T))), which is how it is
    done.

    Claim: HEURISTIC, even at one hole per look: to draw everywhere and keep what came out surest acts like a lower
    temperature. It loses where tokens depend on each other more than their certainty tells. Cost: at most T looks.
    """

    steps: int = 12
    heat: float = 4.5
    schedule: Schedule = SCHEDULES["cosine"]

    def __post_init__(self) -> None:
        expect(whole(self.steps, 1), "annealed:steps", self.steps, "a whole number of looks from 1 on")
        expect(real(self.heat, 0), "annealed:heat", self.heat, "a number from 0 on; 0 keeps the surest")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        done, left = looks(state.canvas) + 1, len(state.holes)
        if done >= self.steps:
            return state.holes
        n, r = writable(state.canvas), done / self.steps
        stays = max(1, min(left - 1, math.floor(n * self.schedule(r, n))))
        return foremost(state, _log_drawn, max(1, left - stays), self.heat * (1 - r))


def _log_drawn(state: DenoiseState, place: int) -> float:
    return math.log(max(state.sure(place), 1e-300))  # a warp may revive what the model rules out
