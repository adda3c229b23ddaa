"""Predictive decoding: look several steps ahead, then take the first step of what looks best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.asks import Decoding, Done
from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, Branching, Watchable, claims
from ...core.law import Law
from ...core.option import expect, real, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ..decode.judge import Chatting
from .beam_cache import BeamCache
from .mark import LikelihoodMark, Mark, fit_mark
from .rollout import Border, Rollout, drawing, rolled
from .search_text import ROWS, Text, said


@claims(
    HEURISTIC,
    trials=lambda rule: [rule(2, 1, 0.5, border=Border((), 1))],
    paper="2410.17195",
    systems=("Predictive-Decoding",),
    shaped=False,
)
@dataclass(frozen=True)
class Foresight(Branching, Watchable):
    """Draw `rollouts` texts of `steps` steps from here; take a first step with probability ∝ Σ exp(mark/`tau`).

    The sum is over all rollouts that begin with it, those of earlier rounds that still fit included; equal steps merge.
    A `tau` of 0 takes the step of the best mark. Then it looks ahead anew: model-predictive control. The mark of the
    paper is exp(mean log p) of the rollout. `watch` is told the text, or the rollouts under way if it is cancelled.

    Claim: HEURISTIC. One rollout of one step is ancestral sampling; a huge `tau` takes steps as often as they were
    drawn.
    Cost: rollouts·steps rows per token that stays, about; at most `rows` rows in all, then what stands.
    """

    rollouts: int = 8
    steps: int = 4
    tau: float = 0.05
    mark: Mark = LikelihoodMark()  # noqa: RUF009  (frozen)
    border: Border = Border()  # noqa: RUF009
    rows: int = 0

    def __post_init__(self) -> None:
        expect(whole(self.rollouts, 1), "foresight:rollouts", self.rollouts, "a whole number of texts from 1 on")
        expect(whole(self.steps, 1), "foresight:steps", self.steps, "a whole number of steps from 1 on")
        expect(real(self.tau, 0), "foresight:tau", self.tau, "a finite number from 0 on; usual is 0.05")
        BeamCache(self.rows)

    @property
    def texts(self) -> int:
        return 2 * self.rollouts

    def fit(self, vocabulary: Chatting) -> Foresight:
        return replace(self, mark=fit_mark(self.mark, vocabulary))

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        grove, here = BeamCache(self.rows), Text.begin(text, warp, stop)
        border = self.border.stop(stop)
        pool: list[tuple[Rollout, float]] = []
        shown: list[Text] = []
        try:
            while here.reason is None and grove.affords([here]):
                position = len(here.prefix)
                texts, follow = [here] * self.rollouts, drawing(chance, position)
                held = [stage for rollout, _ in pool for stage in rollout.stages]
                found = yield from rolled(grove, here, texts, border, stop, follow, self.steps, held, shown.extend)
                marks = yield from self.mark(grove, found)
                pool += zip(found, marks, strict=True)
                before, here = here, self._chosen(here, pool, chance, position)
                pool = [(rollout, mark) for rollout, mark in pool if _next(rollout, here) is not None]
                yield said(here, len(before.tokens))
        finally:
            self.watch(shown or [here])
        return Done(here.tokens, here.reason or ROWS, here.trim)

    def _chosen(self, here: Text, pool: Sequence[tuple[Rollout, float]], chance: Chance, position: int) -> Text:
        options: dict[tuple[int, ...], Text] = {}
        weights: dict[tuple[int, ...], float] = {}
        best = max(mark for _, mark in pool)
        for rollout, mark in pool:
            stage = _next(rollout, here)
            assert stage is not None  # the pool holds what goes on from here
            options.setdefault(stage.tokens, stage)
            heavy = float(mark == best) if self.tau == 0 else math.exp((mark - best) / self.tau)
            weights[stage.tokens] = weights.get(stage.tokens, 0.0) + heavy
        if self.tau == 0:
            return options[next(tokens for tokens, weight in weights.items() if weight)]
        drawn = Law.of(list(weights.values())).draw(chance, At(position, Role.ORDER))
        return list(options.values())[drawn.token]


def _next(rollout: Rollout, here: Text) -> Text | None:
    """The first stage of a rollout that goes on from here, if it does."""
    size = len(here.tokens)
    if rollout.text.tokens[:size] != here.tokens:
        return None
    return next((stage for stage in rollout.stages if len(stage.tokens) > size), None)
