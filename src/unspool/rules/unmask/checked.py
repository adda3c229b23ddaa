"""Drafts that are checked before they stand: a run of holes is filled at once and read from left to right."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ...core.asks import Look
from ...core.canvas import Field
from ...core.chance import At, Role
from ...core.claim import HEURISTIC, Method, claims
from ...core.errors import BadRequest
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Checking, FixedBlocks
from .confident import Confident
from .hierarchy import runs


def _trials() -> Iterator[Method]:
    yield Denoise(Confident(0.6), 3, FixedBlocks(16), check=CheckedUnmask())
    yield Denoise(Confident(0.6), 3, FixedBlocks(16), check=CheckedUnmask(-math.inf))


@claims(
    HEURISTIC, name="checked", shaped=False, trials=lambda _: _trials(), paper="2603.25702", systems=("S2D2 (routed)",)
)
@dataclass(frozen=True)
class CheckedUnmask:
    """Draw the first run of holes and let the model read it: accept x ~ p with min(1, q/p), else draw norm[q − p]₊.

    q is the law of each place given what stands outside of the run and the drafts before it, told by one look more.
    That is done if Ê ≥ `cost` and the run has at least `least` holes, where Ê = Σₖ Πᵢ≤ₖ exp(−Hᵢ / ln V) is how many
    drafts are expected to stand; else the rule's choice stands unchecked. The paper's hysteresis and its bandit are
    not offered.

    Claim: HEURISTIC; with cost −∞ every run is checked, and what comes out is the law of reading left to right. At
    temperature 0 a draft stands if it is what reading would have written. Cost: two looks where it checks.
    """

    cost: float = 1.0
    least: int = 1

    def __post_init__(self) -> None:
        if self.least < 1 or math.isnan(self.cost):
            raise BadRequest(
                f"checked:cost={self.cost},least={self.least} cannot be used; expected numbers, least from 1"
            )

    def __call__(self, sight: DenoiseState, chosen: Collection[int]) -> Checking:
        run = runs(sight.holes)[0]
        if len(run) < self.least or self._expected(sight, run) < self.cost:
            return chosen
        drafts = {i: sight.preview(i) for i in run}
        filled = sight.canvas.fill({i: drawn.token for i, drawn in drafts.items()})
        read: Field = yield Look(filled, along=tuple(run))
        step, stood = sight.canvas.step, list[int]()
        for i in run:
            law, (token, p) = sight.shaped(i, read[i]), drafts[i]
            stood.append(i)
            sure = min(1.0, law[token] / p[token])
            if sight.chance.coin(sure, At(i, Role.ACCEPT, round=step)):
                sight.settle(i, drafts[i])
                continue
            sight.settle(i, law.minus(p).draw(sight.chance, At(i, Role.RESIDUAL, round=step)))
            break
        return stood

    def _expected(self, sight: DenoiseState, run: list[int]) -> float:
        """How many drafts of a run are expected to stand."""
        total, reach = 0.0, 1.0
        for i in run:
            reach *= math.exp(-sight.peak(i).entropy / math.log(max(2, sight.raw[i].size)))
            total += reach
        return total
