"""Credit for what was the best guess before: a hole that has said the same for a while is believed sooner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ...core.canvas import Canvas, Confidence, Field, Status
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real
from ...loops.denoise import Denoise
from ...loops.unmasker import FixedBlocks, StatefulRule, View, Viewing, begun, look
from .confident import Confident


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Confident(0.7), 3, FixedBlocks(32), Credited())],
    paper="2510.06133",
    systems=("CreditDecoding", "dInfer (credit)"),
)
@dataclass(frozen=True)
class Credited(StatefulRule):
    """Raise each hole's score of x by `weight`·ln(1 + credit(x)), where credit remembers the best guesses so far.

    At every look credit ← `decay`·credit, and then credit(v) += p(v)^`power` for the best guess v; it is forgotten when
    the block is done. A guess that stays the same has p^power/(1 − decay) in the end, and so its score is raised by at
    most weight·ln(1 + 1/(1 − decay)), 1.25 at the defaults. Only best guesses ever have credit, so little is stored.
    A law that nothing open can change is left alone.
    The laws are then no longer the model's own: they tell how soon to fill a hole, not how often that is right.

    Claim: HEURISTIC; with weight 0 it is a plain look. It loses where a first guess is wrong and keeps its credit while
    the context changes. Cost: one look, one copy of its scores.
    """

    weight: float = 0.7
    decay: float = 0.8
    power: float = 0.2
    view: View = look  # how the laws come about that credit is added to

    def __post_init__(self) -> None:
        expect(real(self.weight, 0), "credited:weight", self.weight, "a number from 0 on; usual is 0.7")
        expect(real(self.decay, 0, 1) and self.decay < 1, "credited:decay", self.decay, "from 0, below 1; usual is 0.8")
        expect(real(self.power, 0), "credited:power", self.power, "a number from 0 on; usual is 0.2")

    def begin(self) -> Crediting:
        return Crediting(self, begun(self.view))


@dataclass
class Crediting:
    """The view with the credit of every hole's best guesses so far; a hole that is not looked at loses it."""

    rule: Credited
    view: View = look
    credit: dict[int, dict[int, float]] = field(default_factory=dict)

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        seen = yield from self.view(canvas, places)
        # A final law knows better than any earlier guess at its place.
        holes = {i: seen.peaks[i] for i in seen if canvas.status[i] == Status.HOLE and i not in seen.final}
        self.credit = {i: self._earned(i, peak) for i, peak in holes.items()}
        return raised(seen, self.credit, self.rule.weight)

    def _earned(self, place: int, peak: Confidence) -> dict[int, float]:
        credit = {x: self.rule.decay * amount for x, amount in self.credit.get(place, {}).items()}
        credit[peak.token] = credit.get(peak.token, 0.0) + peak.p**self.rule.power
        return credit


def raised(seen: Field, credit: Mapping[int, Mapping[int, float]], weight: float) -> Field:
    """The field with every score raised by what its credit is worth."""
    row = {i: n for n, i in enumerate(seen)}
    gains = [(row[i], x, weight * math.log1p(amount)) for i, own in credit.items() for x, amount in own.items()]
    if not gains or weight == 0:
        return seen
    rows, tokens, worth = zip(*gains, strict=True)
    scores = seen.scores.clone()
    device = scores.device
    scores[torch.tensor(rows, device=device), torch.tensor(tokens, device=device)] += torch.tensor(worth).to(scores)
    return Field.of(list(seen), scores, seen.rows, seen.final)
