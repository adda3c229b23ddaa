"""One hole in every run of holes, so that runs are halved rather than eaten up from one end."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks
from .certainty import confidence, ranked


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Hierarchy(0.65), 3, FixedBlocks(32))],
    paper="2510.08666",
    systems=("dInfer (hierarchical)",),
)
@dataclass(frozen=True)
class Hierarchy:
    """Fill every hole with p ≥ `threshold` and the surest of every run of holes if it has p ≥ `low`, or the surest.

    Holes far apart depend on each other less, and what stands between two runs tells both of them something. The
    variant that masks unsure tokens again is not here.

    Claim: HEURISTIC; with low > 1 it is `confident`. It loses where a low bar lets a guess stand that its neighbours
    would have corrected. Cost: one look per group.
    """

    threshold: float = 0.9
    low: float = 0.4

    def __post_init__(self) -> None:
        expect(real(self.threshold), "hierarchy:threshold", self.threshold, "a probability; usual is 0.9")
        expect(real(self.low), "hierarchy:low", self.low, "a probability; usual is 0.4")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        sure = {i: state.peak(i).p for i in state.holes}
        tops = [max(run, key=lambda i: sure[i]) for run in runs(state.holes)]
        chosen = {i for i, p in sure.items() if p >= self.threshold} | {i for i in tops if sure[i] >= self.low}
        return chosen or ranked(state, confidence)[:1]


def runs(places: Iterable[int]) -> list[list[int]]:
    """The longest stretches of places without a gap, left to right."""
    found: list[list[int]] = []
    for i in sorted(places):
        if found and found[-1][-1] == i - 1:
            found[-1].append(i)
        else:
            found.append([i])
    return found
