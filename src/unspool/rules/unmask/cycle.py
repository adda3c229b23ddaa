"""Slow looks that find how far the model is sure, then fast ones up to there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import pstdev
from typing import Any

from ...core.canvas import Canvas
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, level, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Cutting, Narrowing, StatefulRule, blocks_of, sized
from .confident import Confident


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Confident(0.6), 3, Cycle(2, 0.5))],
    paper="2506.10848",
    systems=("SlowFast sampling",),
)
@dataclass(frozen=True)
class Cycle(StatefulRule, Cutting):
    """Look at the whole block until the last place with p ≥ `least` stays where it is; then only at what is before it.

    Slow: up to `looks` looks; the horizon e is the place after the last hole whose best token has at least `least`;
    the last `recent` horizons with a standard deviation below `steady` end it. Fast: the canvas is cut at e until all
    before e is filled. In both the rule that fills chooses; then the next cycle begins.

    Claim: HEURISTIC. Without slow looks it is the rule in its blocks. What is cut off is no condition any more, so the
    fast laws are others; it loses where the right end of an answer says much about its middle. Cost: one forward per
    look, in the fast phase over the canvas up to e alone.
    """

    looks: int = 6
    least: float = 0.3
    steady: float = 1.0
    recent: int = 2
    block: int = 0

    def __post_init__(self) -> None:
        expect(whole(self.looks, 0), "cycle:looks", self.looks, "a whole number of slow looks from 0 on")
        expect(level(self.least), "cycle:least", self.least, "a number; usual is 0.3")
        expect(level(self.steady), "cycle:steady", self.steady, "a number of places; usual is 1")
        expect(whole(self.recent, 1), "cycle:recent", self.recent, "a whole number of horizons from 1 on")
        blocks_of(self.block)

    def fit(self, vocabulary: Any) -> Cycle:
        return replace(self, block=sized(self.block, vocabulary))

    def begin(self) -> _Turn:
        return _Turn(self)


@dataclass
class _Turn(Narrowing):
    """One cycle: the horizons so far, and the end of the fast phase when it is known."""

    rule: Cycle
    horizons: list[int] = field(default_factory=list)
    end: int | None = None

    def __call__(self, canvas: Canvas) -> Canvas:
        block = blocks_of(self.rule.block)(canvas)
        if self.end is not None and canvas.settled >= self.end:
            self.horizons, self.end = [], None
        if self.end is None:
            return block
        return canvas.cut(self.end).within(block.window[0], self.end)

    def saw(self, state: DenoiseState) -> DenoiseState:
        """All that was seen; the slow phase takes note of how far the model is sure."""
        if self.end is None and self.rule.looks:
            self.horizons.append(self._horizon(state))
            last = self.horizons[-self.rule.recent :]
            calm = len(last) == self.rule.recent and pstdev(last) < self.rule.steady
            if calm or len(self.horizons) == self.rule.looks:
                self.end = last[-1]
        return state

    def _horizon(self, state: DenoiseState) -> int:
        sure = [i for i in state.holes if state.peak(i).p >= self.rule.least]
        return 1 + max(sure, default=state.canvas.settled)
