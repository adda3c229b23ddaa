"""Drafts that are checked before they stand: a run of holes is filled at once and read from left to right."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ...core.asks import Look
from ...core.canvas import Field
from ...core.chance import At, Role
from ...core.claim import HEURISTIC, Method, claims
from ...core.option import expect, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Checking, FixedBlocks, Rule
from .confident import Confident
from .hierarchy import runs
from .routing import AboveCost, Route, RunSeen


def _trials() -> Iterator[Method]:
    yield Denoise(Confident(0.6), 3, FixedBlocks(16), check=CheckedUnmask())
    yield Denoise(Confident(0.6), 3, FixedBlocks(16), check=CheckedUnmask(AboveCost(-math.inf)))


@claims(
    HEURISTIC,
    name="checked",
    shaped=False,
    trials=lambda _: _trials(),
    paper="2603.25702",
    systems=("S2D2 (routed)",),
)
@dataclass(frozen=True)
class CheckedUnmask(Rule):
    """Draw the first run of holes and let the model read it: accept x ~ p with min(1, q/p), else draw norm[q − p]₊.

    q is the law of each place given what stands outside of the run and the drafts before it, told by one look more.
    That is done if the run has at least `least` holes and the `route` says so: by how many drafts are expected to stand
    against a cost (static), against what is sure without a check (dynamic), with hysteresis, or by a bandit that learns
    which brings more; else the rule's choice stands unchecked.

    Claim: HEURISTIC; with a static cost of −∞ every run is checked, and what comes out is the law of reading left to
    right. At temperature 0 a draft stands if it is what reading would have written. Cost: two looks where it checks.
    """

    route: Route = AboveCost()  # noqa: RUF009  (frozen)
    least: int = 1

    def __post_init__(self) -> None:
        expect(whole(self.least, 1), "checked:least", self.least, "a number of holes from 1 on")

    def begin(self) -> CheckedUnmask:
        return CheckedUnmask(self.route.begin(), self.least)

    def __call__(self, state: DenoiseState, chosen: Collection[int]) -> Checking:
        run = runs(state.holes)[0]
        if len(run) < self.least:
            return chosen
        if not self.route(self._seen(state, run, chosen)):
            self.route.learn(len(chosen))
            return chosen
        drafts = {i: state.preview(i) for i in run}
        filled = state.canvas.fill({i: drawn.token for i, drawn in drafts.items()})
        read: Field = yield Look(filled, along=tuple(run))
        step, stood = state.canvas.step, list[int]()
        for i in run:
            law, (token, p) = state.shaped(i, read[i]), drafts[i]
            stood.append(i)
            sure = min(1.0, law[token] / p[token])
            if state.chance.coin(sure, At(i, Role.ACCEPT, round=step)):
                state.settle(i, drafts[i])
                continue
            state.settle(i, law.minus(p).draw(state.chance, At(i, Role.RESIDUAL, round=step)))
            break
        self.route.learn(len(stood))
        return stood

    def _seen(self, state: DenoiseState, run: list[int], chosen: Collection[int]) -> RunSeen:
        expected, reach = 0.0, 1.0
        for i in run:
            reach *= math.exp(-state.peak(i).entropy / math.log(max(2, state.raw[i].size)))
            expected += reach
        low, high = state.canvas.window
        entropy = sum(state.peak(i).entropy for i in run) / len(run)
        return RunSeen(expected, len(chosen), len(run), 1 - len(state.holes) / max(1, high - low), entropy)
