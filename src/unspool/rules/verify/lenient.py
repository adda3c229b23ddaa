"""Lenience: speculative sampling that looks away when the draft is only a little too sure."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Verdict
from ...core.chance import Chance, Role
from ...core.claim import BOUND, claims
from ...core.option import expect, real
from ...core.tree import ROOT
from ...core.verifier import token_by_token
from ...core.warp.warp import Scored
from .verify_trials import chained


@claims(
    BOUND,
    trials=lambda rule: chained(rule()),
    bound=lambda case: Lenient().gap(case.most),
    paper="2211.17192",
    systems=("Speculative decoding (lenience)",),
)
@token_by_token
@dataclass(frozen=True)
class Lenient:
    """Accept x ~ q with probability min(1, p(x)/(l·q(x))), else p ← norm[p − q]₊, for a lenience l ≤ 1.

    No token comes more than 1/l times as often as it should, so one token is off by at most 1 − l in total variation,
    and n tokens by 1 − lⁿ. Younger siblings are tested without lenience, or the bound would not hold. The bound is
    this library's: Σ over {q > p} of min(q, p/l) − p ≤ max over a of min(1, a/l) − a = 1 − l.

    Claim: BOUND, 1 − lⁿ in total variation for texts of n tokens. Cost: as rejection.
    """

    lenience: float = 0.8

    def __post_init__(self) -> None:
        expect(
            real(self.lenience, 0, 1) and self.lenience > 0,
            "lenient:lenience",
            self.lenience,
            "a number above 0, up to 1 (exact)",
        )

    def gap(self, tokens: int) -> float:
        return 1 - self.lenience**tokens

    def __call__(self, scored: Scored, chance: Chance) -> Verdict:
        tree, node, law = scored.tree, ROOT, scored.law(ROOT)
        while kids := tree.kids(node):
            for k, kid in enumerate(kids):
                x, q = tree.drawn[kid]
                fair = (self.lenience if k == 0 else 1.0) * q[x]
                if chance.coin(min(1.0, law[x] / fair) if fair > 0 else 0.0, scored.at(Role.ACCEPT, node, k)):
                    node, law = kid, scored.law(kid)
                    break
                law = law.minus(q)
            else:
                break
        return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)
