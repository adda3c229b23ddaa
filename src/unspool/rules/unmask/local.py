"""A lower bar near what is sure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks
from .certainty import confidence, ranked


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Local(0.7, 0.5, 1), 3, FixedBlocks(32))],
    paper="2510.07081",
    systems=("LocalLeap",),
)
@dataclass(frozen=True)
class Local:
    """Fill every hole with p ≥ `threshold`, those with p ≥ `relaxed` within `radius` places of one, else the surest.

    What stands beside a token that is sure is known better than its own probability says, as its context has just
    grown: there a lower bar will do.

    Claim: HEURISTIC; with radius 0 or relaxed = threshold it is `confident`. It loses where neighbours of a sure token
    depend on each other: inside names and numbers. Cost: one look per group.
    """

    threshold: float = 0.9
    relaxed: float = 0.75
    radius: int = 4

    def __post_init__(self) -> None:
        expect(real(self.threshold), "local:threshold", self.threshold, "a probability; usual is 0.9")
        expect(
            real(self.relaxed, high=self.threshold),
            "local:relaxed",
            self.relaxed,
            f"a probability no higher than the threshold, {self.threshold}; usual is 0.75",
        )
        expect(whole(self.radius, 0), "local:radius", self.radius, "a whole number of places from 0 on")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        sure = {i: state.peak(i).p for i in state.holes}
        anchors = [i for i, p in sure.items() if p >= self.threshold]
        near = {i for a in anchors for i in range(a - self.radius, a + self.radius + 1)}
        chosen = [i for i, p in sure.items() if p >= (self.relaxed if i in near else self.threshold)]
        return chosen or ranked(state, confidence)[:1]
