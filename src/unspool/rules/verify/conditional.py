"""Conditional verification: what is drafted stands if it clears a bar that falls with the target's uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Verdict
from ...core.chance import Chance, Role
from ...core.claim import HEURISTIC, claims
from ...core.law import Law
from ...core.option import expect, real
from ...core.tree import ROOT
from ...core.verifier import token_by_token
from ...core.warp.truncate import entropy
from ...core.warp.warp import Scored
from .verify_trials import chained


@claims(
    HEURISTIC, trials=lambda rule: chained(rule()), paper="2505.13204", systems=("AASD (conditional verification)",)
)
@token_by_token
@dataclass(frozen=True)
class Conditional:
    """Accept the first sibling with P(x) ≥ min(`base` − `slope`·H(P), max P); if none clears the bar, walk.

    The formula and its defaults are those of a re-implementation; the paper's own were not found. Where H(P) is at
    least base/slope, the bar is at or below 0 and whatever the target allows at all is accepted.

    Claim: HEURISTIC. A drafted token that clears the bar always stands, so copied text stays longer than it should.
    Cost: one entropy per accepted token; one draw per token that sample matching decides.
    """

    base: float = 0.1
    slope: float = 0.1

    def __post_init__(self) -> None:
        expect(real(self.base, 0, 1), "conditional:base", self.base, "a probability; usual is 0.1")
        expect(real(self.slope, 0), "conditional:slope", self.slope, "a number from 0 on; usual is 0.1")

    def __call__(self, scored: Scored, chance: Chance) -> Verdict:
        tree, node = scored.tree, ROOT
        while True:
            law = scored.law(node)
            kids = tree.kids(node)
            bar = self._bar(law) if kids else 0.0
            clear = [kid for kid in kids if law[tree.drawn[kid].token] >= bar and law[tree.drawn[kid].token] > 0]
            if clear:
                node = clear[0]
                continue
            token = law.draw(chance, scored.at(Role.PICK, node)).token
            kid = tree.child(node, token)
            if kid is None:
                return Verdict(node, token)
            node = kid

    def _bar(self, law: Law) -> float:
        return min(self.base - self.slope * entropy(law, -law.scores.log_softmax(0)), law[law.best])
