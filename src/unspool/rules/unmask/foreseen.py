"""The end of the text foreseen, and nothing looked at behind it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from ...core.canvas import HOLE, Canvas
from ...core.claim import HEURISTIC, Method, claims
from ...core.errors import BadRequest
from ...core.option import expect, level, real
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Cutting, Narrowing, StatefulRule, blocks_of, sized, with_holes
from .confident import Confident


def _trials(rule: type[Foreseen]) -> list[Method]:
    return [Denoise(Confident(0.6), 3, rule(3, 0.9, 0.5, ends=(1,)))]


@claims(HEURISTIC, shaped=False, trials=_trials, paper="2509.25188", systems=("Learn2PD (end-of-text prediction)",))
@dataclass(frozen=True)
class Foreseen(StatefulRule, Cutting):
    """Cut the canvas behind the hole that most surely ends the text, and work on blocks of what is left.

    Where a hole of the block has an end as its best token with at least `sure`, the first of these counts; else the
    surest of all holes, with at least `floor`: without a floor, as in the paper, any chance remark of an end cuts the
    text. Nothing is cut that is filled already. If the hole comes to hold something else, what was cut comes back.
    `ends` are the tokens that end a text; a method that is run by name takes them from the vocabulary.

    Claim: HEURISTIC; a floor above 1 never cuts. It loses where the model sees an end too early, since a cut canvas
    itself suggests one. Cost: none of its own; every look is at all holes, but of a shorter canvas.
    """

    block: int = 32
    sure: float = 0.9
    floor: float = 0.5
    ends: Collection[int] = ()

    def __post_init__(self) -> None:
        expect(real(self.floor, 0), "foreseen:floor", self.floor, "a probability")
        expect(level(self.sure), "foreseen:sure", self.sure, "a number; usual is 0.9")
        blocks_of(self.block)

    def fit(self, vocabulary: Any) -> Foreseen:
        return replace(self, block=sized(self.block, vocabulary), ends=self.ends or frozenset(vocabulary.eos))

    def begin(self) -> _Ending:
        if not self.ends:
            raise BadRequest(
                "foreseen needs to know the tokens that end a text: run the method through a loaded model, which gives "
                "its vocabulary, or give ends=(id, …)."
            )
        return _Ending(self)


@dataclass
class _Ending(Narrowing):
    """Where the text ends, as far as it is known."""

    rule: Foreseen
    end: int | None = None

    def __call__(self, canvas: Canvas) -> Canvas:
        if self.end is not None and canvas.settled >= self.end:
            self.end = None
        until = canvas if self.end is None else canvas.cut(self.end)
        return until.within(blocks_of(self.rule.block)(until).window[0], len(until))

    def saw(self, state: DenoiseState) -> DenoiseState:
        low, high = with_holes(blocks_of(self.rule.block), state.canvas)
        filled = max((i for i, x in enumerate(state.canvas.tokens) if x != HOLE), default=-1)
        found = {i: peak.p for i in state.holes if i > filled and (peak := state.peak(i)).token in self.rule.ends}
        near = [i for i, p in found.items() if i < high and p >= self.rule.sure]
        best = near[0] if near else max(found, key=lambda i: found[i], default=low)
        if near or found.get(best, -1.0) >= self.rule.floor:
            self.end = best + 1
        return state.within(low, high if self.end is None else min(high, self.end))
