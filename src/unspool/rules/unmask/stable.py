"""Every hole that is sure, and whose law has stopped moving."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core.canvas import Status
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks, StatefulRule
from .certainty import confidence, foremost
from .quota import quota


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Stable(0.5, 0.2, 1, 3), 3, FixedBlocks(3))],
    paper="2511.05664",
    systems=("KLASS",),
)
@dataclass(frozen=True)
class Stable(StatefulRule):
    """Fill every hole with p ≥ `threshold` whose last `history` KL(now ‖ before) were all below `drift`; else a quota.

    A law has to be seen twice before it can be called stable, so the first looks at a block go by the quota: the
    surest, n // steps of its n holes. The paper's code calls the entropy itself a confidence in one of its branches;
    here the surest are the most probable.

    Claim: HEURISTIC; with history 0 it is the threshold alone, with drift 0 `quota`. It loses where a law is stable
    and sure because nothing has told it yet of what it depends on. Cost: one look per group, and the last law of every
    hole in memory, a row of the vocabulary each.
    """

    threshold: float = 0.9
    drift: float = 0.01
    history: int = 2
    steps: int = 64

    def __post_init__(self) -> None:
        expect(real(self.threshold), "stable:threshold", self.threshold, "a probability; usual is 0.6 to 0.9")
        expect(
            self.drift == math.inf or real(self.drift, 0), "stable:drift", self.drift, "nats; usual is 0.001 to 0.015"
        )
        expect(whole(self.history, 0), "stable:history", self.history, "a whole number of looks from 0 on; usual is 2")
        expect(whole(self.steps, 1), "stable:steps", self.steps, "a whole number of looks per block from 1 on")

    def begin(self) -> StableState:
        return StableState(self)


@dataclass
class StableState:
    """The rule with the laws of the last look, and for how many looks each has been stable."""

    rule: Stable
    before: LookLaws | None = None
    calm: dict[int, int] = field(default_factory=dict)

    def __call__(self, state: DenoiseState) -> Collection[int]:
        now = LookLaws.of(state)
        moved = {} if self.before is None else now.moved(self.before)
        self.calm = {i: self.calm.get(i, 0) + 1 for i, nats in moved.items() if nats < self.rule.drift}
        self.before = now
        rule = self.rule
        ready = [i for i in state.holes if state.peak(i).p >= rule.threshold and self.calm.get(i, 0) >= rule.history]
        return ready or foremost(state, confidence, quota(state.canvas, rule.steps))


@dataclass(frozen=True)
class LookLaws:
    """The log-probabilities of all holes at one look, a row each."""

    places: Sequence[int]
    logs: Tensor

    @staticmethod
    def of(state: DenoiseState) -> LookLaws:
        """What a look has told."""
        rows = [n for n, i in enumerate(state.raw) if state.canvas.status[i] == Status.HOLE]
        return LookLaws(state.holes, state.raw.scores[rows].float().log_softmax(1))

    def moved(self, before: LookLaws) -> dict[int, float]:
        """KL(now ‖ before) of every place that was seen then too, in nats."""
        row = {i: n for n, i in enumerate(before.places)}
        seen = [(i, n, row[i]) for n, i in enumerate(self.places) if i in row]
        p, q = self.logs[[n for _, n, _ in seen]], before.logs[[n for _, _, n in seen]]
        nats = torch.where(p.isfinite(), p.exp() * (p - q), 0.0).sum(1)
        # rounding may leave a law that has not moved a little below 0
        return dict(zip((i for i, _, _ in seen), nats.clamp_min(0).tolist(), strict=True))
