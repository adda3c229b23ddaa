"""One hole per look, by how sure its draw is and by luck that runs out."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from .certainty import foremost
from .quota import writable
from .unmask_trials import Brief


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Brief(lambda size: Denoise(Cooling(), size))],
    paper="2501.06158",
    systems=("GenMol (confidence sampling)",),
)
@dataclass(frozen=True)
class Cooling:
    """Draw in every hole, and keep the draw with the most ln p(x̂) + randomness·(1 − i/(n − 1))·Gumbel, i of n filled.

    As the most after such noise is one drawn ∝ p(x̂)^(1/heat), that is how it is done.

    Claim: HEURISTIC: what comes out surest is kept, which acts like a lower temperature. It loses where rare tokens
    matter, as they are drawn again and again until they are gone. Cost: one look per token.
    """

    randomness: float = 0.5

    def __post_init__(self) -> None:
        expect(real(self.randomness, 0), "cooling:randomness", self.randomness, "a number from 0 on; usual is 0.5 to 3")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        n = writable(state.canvas)
        heat = self.randomness * (1 - (n - len(state.holes)) / max(1, n - 1))
        return foremost(state, _log, 1, max(0.0, heat))


def _log(state: DenoiseState, place: int) -> float:
    return math.log(max(state.sure(place), 1e-300))  # a warp may revive what the model rules out
