"""A lower bar near what is sure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from ...core.claim import HEURISTIC, Method, claims
from ...core.option import CANVAS, Range
from ...core.warp.limits import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.sight import Sight
from ...loops.unmask_blocks import blocks_of
from .certainty import confidence, ranked


def build(
    threshold: Annotated[float, Range(-10_000, 10_000)] = 0.9,
    relaxed: Annotated[float, Range(-10_000, 10_000)] = 0.75,
    radius: Annotated[int, Range(0, 1024)] = 4,
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """All holes of a block above the threshold per look, and near them those above the relaxed one."""
    return Denoise(Local(threshold, relaxed, radius), size, blocks_of(block))


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [build(threshold=0.7, relaxed=0.5, radius=1, size=3)],
    build=build,
    paper="2510.07081",
    systems=("LocalLeap",),
)
@dataclass(frozen=True)
class Local:
    """Fill every hole with p ≥ `threshold`, those with p ≥ `relaxed` within `radius` places of one, else the surest.

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

    def __call__(self, sight: Sight) -> Collection[int]:
        """The anchors and what is sure enough near them, or the surest."""
        sure = {i: sight.peak(i).p for i in sight.holes}
        anchors = [i for i, p in sure.items() if p >= self.threshold]
        near = {i for a in anchors for i in range(a - self.radius, a + self.radius + 1)}
        chosen = [i for i, p in sure.items() if p >= (self.relaxed if i in near else self.threshold)]
        return chosen or ranked(sight, confidence)[:1]
