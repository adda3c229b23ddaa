"""Holes that carry what the last look said of them, refined before anything is filled."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ...core.asks import Look, Soft
from ...core.canvas import Canvas, Field, Status
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, level, real, whole
from ...core.warp import TopP
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks, StatefulRule, Viewing, look
from .certainty import entropy, foremost
from .stable import LookLaws
from .unmask_trials import Brief


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Brief(lambda size: Denoise(Settled(1.0), size, FixedBlocks(32), Softened()), 3)],
    paper="2510.11052",
    systems=("LRD (latent refinement decoding)",),
)
@dataclass(frozen=True)
class Softened(StatefulRule):
    """Show the model each hole as a mixture of the mask and of what it said of that hole at its last look.

    (1 − α)·mask + α·Σ p̄(x)·embedding(x), with α = `weight`·(1 − H / ln |V|) and p̄ the law's nucleus of mass `nucleus`.
    At the first look at a block this is repeated, with nothing filled, until the mean KL(p_new ‖ p_old) of its holes is
    below `refine` or `looks` looks are over.

    Claim: HEURISTIC; weight 0 is a plain look. A model that takes no mixtures sees plain holes. It loses with weights
    near 1, which no model was trained for, and where the first guess is wrong and feeds itself. Cost: up to `looks`
    looks more per block, and a row of the vocabulary per hole in memory.
    """

    weight: float = 0.15
    refine: float = 0.1
    looks: int = 20
    nucleus: float = 0.9

    def __post_init__(self) -> None:
        expect(real(self.weight, 0, 1), "softened:weight", self.weight, "a share from 0 to 1; usual is 0.1 to 0.2")
        expect(level(self.refine), "softened:refine", self.refine, "a number of nats; usual is 0.1")
        expect(real(self.nucleus, 0, 1), "softened:nucleus", self.nucleus, "a share from 0 to 1; usual is 0.9")
        expect(whole(self.looks, 0), "softened:looks", self.looks, "a whole number of looks from 0 on")

    def begin(self) -> _Latent:
        return _Latent(self)

    def soft(self, seen: Field) -> dict[int, Soft]:
        """What each hole looks like after this was said of it."""
        top = math.log(seen.scores.shape[1])
        nucleus = TopP(self.nucleus)
        weights = {i: self.weight * max(0.0, 1 - peak.entropy / top) for i, peak in seen.peaks.items()}
        return {i: Soft(nucleus(None, seen[i]), weight) for i, weight in weights.items()}


@dataclass
class _Latent:
    """What the last look said, and of which window."""

    rule: Softened
    seen: Field = field(default_factory=lambda: Field({}))
    window: tuple[int, int] | None = None

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        if self.rule.weight == 0:
            return (yield from look(canvas, places))
        rows, more = 0, 0
        if canvas.window != self.window:
            self.window, self.seen, more = canvas.window, Field({}), self.rule.looks
        while True:
            before = self.seen
            holes = {i: law for i, law in before.items() if canvas.status[i] == Status.HOLE}
            self.seen = yield Look(canvas, tuple(places), soft=self.rule.soft(Field(holes)) if holes else {})
            rows, more = rows + self.seen.rows, more - 1
            if more < 0 or (before and drift(self.seen, before) < self.rule.refine):
                return Field.of(list(self.seen), self.seen.scores, rows, self.seen.final)


@dataclass(frozen=True)
class Settled(StatefulRule):
    """Fill the calmest hole, or all once the mean KL(now ‖ at the look before) of the holes is below `threshold`.

    The paper fills the rest by argmax; at a temperature above 0 it is drawn here.
    """

    threshold: float = 0.1

    def __post_init__(self) -> None:
        expect(level(self.threshold), "softened:settle", self.threshold, "a number of nats; usual is 0.1")

    def begin(self) -> _Calming:
        return _Calming(self)


@dataclass
class _Calming:
    """The last look, and at which window."""

    rule: Settled
    seen: Field = field(default_factory=lambda: Field({}))
    window: tuple[int, int] | None = None

    def __call__(self, state: DenoiseState) -> Collection[int]:
        before, self.seen = self.seen if state.canvas.window == self.window else Field({}), state.raw
        self.window = state.canvas.window
        if before and drift(state.raw, before) < self.rule.threshold:
            return state.holes
        return foremost(state, entropy, 1)


def drift(now: Field, before: Field) -> float:
    """The mean KL(now ‖ before) of all places that both looks were at, in nats."""
    laws = [LookLaws(list(seen), seen.scores.float().log_softmax(1)) for seen in (now, before)]
    moved = laws[0].moved(laws[1])
    return sum(moved.values()) / len(moved) if moved else math.inf
