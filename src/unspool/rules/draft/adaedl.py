"""A chain that ends where the draft model is unsure, by a bar that follows what was accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.claim import LAW, claims
from ...core.law import Law
from ...core.option import expect, real
from ...loops.speculate import Speculate
from ..grow.draft_length import Length
from ..verify.rejection import rejection
from .chain import DRAFT
from .paced import Paced
from .svip import check_entropy_rule, refusal_bound

SLOWLY = 0.1  # of the way to where the bar should be


@claims(
    LAW,
    name="adaedl",
    trials=lambda rule: [Speculate(Paced(rule(first=0.6, by=0.9, longest=2)), rejection, budget=2)],
    paper="2410.18351",
    systems=("AdaEDL (adaptive entropy-based draft length)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class AdaEDL(Length):
    """Draw on as long as 1 − √(`scale`·H(Q)) is at least λ, which follows how much of the drafts was accepted.

    r ← ½·r + ½·accepted/drafted; λ moves a tenth of the way to λ + `by` where r is below `aim`, and to λ − `by`
    where it is above: too much refused asks for shorter drafts. The token at which the bound falls below λ is kept, as
    `svip` keeps it. The constants are those of a description; the paper's own text was not at hand.

    Claim: LAW under rejection. Cost: one entropy per drafted token beside its forward of the draft model.
    """

    first: float = 0.4
    scale: float = 0.2
    aim: float = 0.9
    by: float = 0.01
    longest: int = 20

    def __post_init__(self) -> None:
        check_entropy_rule("adaedl", self.scale, self.longest)
        for name, given in (("first", self.first), ("aim", self.aim), ("by", self.by)):
            expect(real(given, 0, 1), f"adaedl:{name}", given, "a number from 0 to 1")

    def start(self) -> tuple[float, float]:
        return self.first, self.aim

    def step(self, state: tuple[float, float], sure: Sequence[float], accepted: int) -> tuple[float, float]:
        bar, rate = state
        if not sure:
            return state
        rate = (rate + accepted / len(sure)) / 2
        moved = self.by if rate < self.aim else -self.by if rate > self.aim else 0.0
        return min(1.0, max(0.0, bar + SLOWLY * moved)), rate

    def most(self, state: tuple[float, float]) -> int:
        return self.longest

    def last(self, state: tuple[float, float], law: Law) -> bool:
        return 1 - refusal_bound(law, self.scale) < state[0]
