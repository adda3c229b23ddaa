"""Mixture: exact speculation for a target that leans towards its draft."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Verdict
from ...core.chance import Chance, Role
from ...core.claim import BOUND, claims
from ...core.law import Law, Point
from ...core.option import expect, real
from ...core.tree import ROOT
from ...core.verifier import token_by_token
from ...core.warp.warp import Scored
from .verify_trials import chained


@claims(
    BOUND,
    trials=lambda rule: chained(rule()),
    bound=lambda case: Mixture().gap(case.most),
    systems=("transformers (assistant_ensemble_weight)",),
)
@token_by_token
@dataclass(frozen=True)
class Mixture:
    """Rejection with (1 − w)·p + w·q in place of p wherever something was drafted, q the eldest sibling's law.

    What is emitted has exactly that law. It differs from p by w·TV(p, q) ≤ w per token, and acceptance rises from
    1 − TV to 1 − (1 − w)·TV. What a constraint or a truncation took from p stays impossible: q counts on S = {p > 0}
    alone, and the weight of the rest stays with p, (1 − w·q(S))·p + w·q on S, off by w·q(S)·TV(p, q given S) ≤ w.
    After the last drafted token there is no q, and p is not mixed; nor is it at temperature 0, where p and q are
    one token each and a mixture of them would be a lottery: the text is greedy.

    Claim: BOUND, 1 − (1 − w)ⁿ in total variation for texts of n tokens. Cost: as rejection.
    """

    weight: float = 0.2

    def __post_init__(self) -> None:
        expect(real(self.weight, 0, 1), "mixture:weight", self.weight, "a number from 0 (exact) to 1 (the draft alone)")

    def gap(self, tokens: int) -> float:
        return 1 - (1 - self.weight) ** tokens

    def __call__(self, scored: Scored, chance: Chance) -> Verdict:
        tree, node, law = scored.tree, ROOT, self._mixed(scored, ROOT)
        while kids := tree.kids(node):
            for k, kid in enumerate(kids):
                x, q = tree.drawn[kid]
                if chance.coin(min(1.0, law[x] / q[x]) if q[x] > 0 else 0.0, scored.at(Role.ACCEPT, node, k)):
                    node, law = kid, self._mixed(scored, kid)
                    break
                law = law.minus(q)
            else:
                break
        return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)

    def _mixed(self, scored: Scored, node: int) -> Law:
        kids = scored.tree.kids(node)
        law = scored.law(node)
        if not kids or isinstance(law, Point):
            return law
        q = scored.tree.drawn[kids[0]].law.spread(law) * (law.p > 0)
        share = float(q.sum())
        return law.mix(Law(q.log()), self.weight * share) if share > 0 else law
