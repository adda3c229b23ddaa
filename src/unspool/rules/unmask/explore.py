"""What is sure everywhere at once; and where nothing is, the hole that would tell most."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks, Rule, with_holes
from .certainty import Certainty


def doubt(sight: DenoiseState, place: int) -> float:
    """The entropy in nats: what is learnt on the mean when the hole is filled."""
    return sight.peak(place).entropy


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Explore(0.7, 2), 3)],
    paper="2511.21103",
    systems=("ETE (reconstructed from the abstract)",),
)
@dataclass(frozen=True)
class Explore(Rule):
    """Fill every hole of the canvas with p ≥ `threshold`; if the first open block has none, also its least certain.

    A round of sure tokens carries little information, −ln p each, so the number of rounds is at least the information
    of the text over what a round may carry. An uncertain token carries more, and tells its neighbours more.
    Reconstructed from the abstract: the paper may choose the hole, or try several tokens there, in another way.

    Claim: HEURISTIC. It loses where the uncertain token is one that the rest of the text should have decided. With
    temperature 0 it guesses the most probable of a flat law. Cost: one look per group.
    """

    threshold: float = 0.9
    block: int = 32
    first: Certainty = doubt

    def __post_init__(self) -> None:
        expect(real(self.threshold), "explore:threshold", self.threshold, "a probability; usual is 0.9")
        expect(whole(self.block, 1), "explore:block", self.block, "a block of at least 1")

    def __call__(self, sight: DenoiseState) -> Collection[int]:
        sure = [i for i in sight.holes if sight.peak(i).p >= self.threshold]
        _, high = with_holes(FixedBlocks(self.block), sight.canvas)
        near = [i for i in sight.holes if i < high] or sight.holes  # the view may not have shown the block
        return sure if set(sure) & set(near) else [*sure, max(near, key=lambda i: self.first(sight, i))]
