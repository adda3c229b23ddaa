"""The reverse process of a masked diffusion itself: every hole has its own coin at every step of time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ...core.chance import At, Role
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import StatefulRule
from .timed import LAST, Clock


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Ancestral(2), 3)],
    paper="2508.15487",
    systems=("Dream (origin)",),
)
@dataclass(frozen=True)
class Ancestral(StatefulRule):
    """At each step of time from t to s fill every hole with probability 1 − s/t, each by its own coin; at the last all.

    The times run from 1 to `last` in `steps` equal steps, anew for each block. A step at which no coin falls is passed
    over without a look, which would only tell the same again.

    Claim: HEURISTIC; the gap goes to 0 as the steps get finer, since then no two holes are filled at once. It loses to
    every rule that looks at certainty where steps are few. Cost: at most `steps` looks, and one per hole at most.
    """

    steps: int = 64
    last: float = LAST

    def __post_init__(self) -> None:
        expect(whole(self.steps, 1), "ancestral:steps", self.steps, "a whole number of steps from 1 on")
        expect(real(self.last, 0, 1), "ancestral:last", self.last, "a time from 0 to 1; usual is 0.001")

    def begin(self) -> Tossing:
        return Tossing(self)


@dataclass
class Tossing:
    """The rule at a time."""

    rule: Ancestral
    clock: Clock = field(default_factory=Clock)

    def __call__(self, state: DenoiseState) -> Collection[int]:
        while True:
            share = self.clock.tick(state, self.rule.steps, self.rule.last)
            if share >= 1:
                return state.holes
            addresses = {i: At(i, Role.ORDER, self.clock.passed, state.canvas.step) for i in state.holes}
            if chosen := [i for i, at in addresses.items() if state.chance.coin(share, at)]:
                return chosen
