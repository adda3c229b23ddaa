"""Time runs from 1 down to almost 0, and at each step the share of holes is filled that a diffusion would unmask."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import StatefulRule
from .certainty import Certainty, entropy, foremost

LAST = 1e-3  # the time at which a diffusion ends
ROUNDING = 1e-9  # a share that is a whole number of holes must not be floored to one less


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Timed(2), 3), Denoise(Timed(3, entropy, 0.5), 3)],
    paper="2508.15487",
    systems=("Dream (maskgit_plus, topk_margin, entropy)",),
)
@dataclass(frozen=True)
class Timed(StatefulRule):
    """At each step of time from t to s fill ⌊|M|·(1 − s/t)⌋ of the |M| holes, the surest first; at the last step all.

    The times run from 1 to `last` in `steps` equal steps, anew for each block. With `heat` the holes are drawn without
    replacement ∝ exp(certainty / heat). Because of the floor many steps may fill nothing and the last one a burst; a
    step that fills nothing is passed over without a look, which would only tell the same again. The scores are the
    model's own, before warps; Dream's `maskgit_plus` (here `drawn`) takes them after temperature and truncation, where
    a truncated law is often a point and all holes look equally sure.

    Claim: HEURISTIC. It loses in the burst at the end, where what is left is the least sure. Cost: at most `steps`
    looks.
    """

    steps: int = 16
    certainty: Certainty = entropy
    heat: float = 0.0
    last: float = LAST

    def __post_init__(self) -> None:
        expect(whole(self.steps, 1), "timed:steps", self.steps, "a whole number of steps from 1 on")
        expect(real(self.heat, 0), "timed:heat", self.heat, "a number from 0 on; 0 takes the surest")
        expect(real(self.last, 0, 1), "timed:last", self.last, "a time from 0 to 1; usual is 0.001")

    def begin(self) -> Timing:
        return Timing(super().begin())


@dataclass
class Clock:
    """How many steps have passed in the block that is being worked on."""

    passed: int = 0
    window: tuple[int, int] | None = None

    def tick(self, state: DenoiseState, steps: int, last: float) -> float:
        """The share of holes that a diffusion unmasks in the next step, 1 − s/t; all at the last one."""
        if state.canvas.window != self.window:
            self.passed, self.window = 0, state.canvas.window
        self.passed += 1
        if self.passed >= steps:
            return 1.0
        return 1 - time(self.passed, steps, last) / time(self.passed - 1, steps, last)


@dataclass
class Timing:
    """The rule at a time."""

    rule: Timed
    clock: Clock = field(default_factory=Clock)

    def __call__(self, state: DenoiseState) -> Collection[int]:
        rule, count = self.rule, 0
        while count == 0:
            share = self.clock.tick(state, rule.steps, rule.last)
            count = math.floor(len(state.holes) * share + ROUNDING)
        return foremost(state, rule.certainty, count, rule.heat)


def time(step: int, steps: int, last: float) -> float:
    """The time after so many of all steps."""
    return 1 - (1 - last) * step / steps
