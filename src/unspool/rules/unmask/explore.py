"""What is sure everywhere at once; and where nothing is, the hole that would tell most."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ...core.asks import Look
from ...core.canvas import Field
from ...core.chance import At, Role
from ...core.claim import HEURISTIC, claims
from ...core.law import Drawn
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Checking, FixedBlocks, Rule, with_holes
from ..search.search_text import without_greedy
from .certainty import Certainty


def doubt(state: DenoiseState, place: int) -> float:
    """The entropy in nats: what is learnt on the mean when the hole is filled."""
    return state.peak(place).entropy


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Explore(0.7, 2), 3), Denoise(Explore(0.7, 2), 3, check=TriedCandidates(0.7, 2))],
    paper="2511.21103",
    systems=("ETE (reconstructed from the abstract)",),
)
@dataclass(frozen=True)
class Explore(Rule):
    """Fill every hole of the canvas with p ≥ `threshold`; if the first open block has none, also its least certain.

    A round of sure tokens carries little information, −ln p each, so the number of rounds is at least the information
    of the text over what a round may carry. An uncertain token carries more, and tells its neighbours more. With
    `TriedCandidates` as the check, several tokens are tried there. Reconstructed from the abstract: the paper may
    choose the hole, or among the tokens, in another way.

    Claim: HEURISTIC. It loses where the uncertain token is one that the rest of the text should have decided. With
    temperature 0 it guesses the most probable of a flat law, unless candidates are tried. Cost: one look per group.
    """

    threshold: float = 0.9
    block: int = 32
    first: Certainty = doubt

    def __post_init__(self) -> None:
        expect(real(self.threshold), "explore:threshold", self.threshold, "a probability; usual is 0.9")
        expect(whole(self.block, 1), "explore:block", self.block, "a block of at least 1")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        sure = [i for i in state.holes if state.peak(i).p >= self.threshold]
        _, high = with_holes(FixedBlocks(self.block), state.canvas)
        near = [i for i in state.holes if i < high] or state.holes  # the view may not have shown the block
        return sure if set(sure) & set(near) else [*sure, max(near, key=lambda i: self.first(state, i))]


@dataclass(frozen=True)
class TriedCandidates(Rule):
    """Where a hole with p < `threshold` was chosen, try `count` tokens there, all in one look, and keep the best one.

    The best is the one after which most holes have p ≥ `threshold`; of equals the one that was drawn, then the more
    probable. What is sure after it is filled at once, so that the look is not made again.

    Cost: one look more per explored hole, at `count` copies of the window.
    """

    threshold: float = 0.9
    count: int = 4

    def __post_init__(self) -> None:
        expect(whole(self.count, 2), "explore:candidates", self.count, "a whole number of tokens from 2 on")

    def __call__(self, state: DenoiseState, chosen: Collection[int]) -> Checking:
        place = next((i for i in chosen if state.peak(i).p < self.threshold), None)
        rest = tuple(i for i in state.holes if i not in chosen)
        if place is None or not rest:
            return chosen
        law = replace(state, warp=without_greedy(state.warp), _drawn={}, _laws={}).law(place)
        probable = [x for x in law.top(self.count) if law[x] > 0]
        tokens = list(dict.fromkeys((state.draw(place).token, *probable)))[: self.count]
        if len(tokens) < 2:
            return chosen
        beside = {i: state.draw(i).token for i in chosen if i != place}
        told: Field = yield Look(state.canvas, rest, trials=tuple({**beside, place: x} for x in tokens))
        fields = told.parted(len(state.canvas))
        sure = [[i for i in rest if field.peaks[i].p >= self.threshold] for field in fields]
        best = max(range(len(tokens)), key=lambda n: (len(sure[n]), -n))
        state.settle(place, Drawn(tokens[best], law))
        for i in sure[best]:
            at = At(i, Role.FILL, round=state.canvas.step) if state.renewed else At(i, Role.PICK)
            told_here = fields[best][i]
            state.settle(i, state.shaped(i, told_here).draw(state.chance, at), told_here)
        return [*chosen, *sure[best]]
