"""Typical acceptance: what is drafted stands if it is not surprising for so uncertain a law."""

from __future__ import annotations

import math
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
    HEURISTIC,
    name="typical",
    trials=lambda rule: chained(rule()),
    paper="2401.10774",
    systems=("Medusa (typical acceptance)",),
)
@token_by_token
@dataclass(frozen=True)
class TypicalAcceptance:
    """Accept the longest path whose every token has P(x) > min(`epsilon`, `alpha`·e^−H(P)); of several the likeliest.

    The next token is drawn from P among the tokens that pass. The best token always passes, so at temperature 0 this
    is greedy verification. Medusa's own helpers disagree on the defaults; these are the ones its generation uses.

    Claim: HEURISTIC. A drafted token that passes always stands, so the drafter's taste shows in the text.
    Cost: one entropy per node with an accepted path, one draw.
    """

    epsilon: float = 0.09
    alpha: float = 0.3

    def __post_init__(self) -> None:
        expect(real(self.epsilon, 0, 1), "typical:epsilon", self.epsilon, "a probability; usual is 0.09")
        expect(real(self.alpha, 0, 1) and self.alpha < 1, "typical:alpha", self.alpha, "from 0, below 1; usual is 0.3")

    def __call__(self, scored: Scored, chance: Chance) -> Verdict:
        tree, bars, likelihood = scored.tree, {ROOT: self._bar(scored.law(ROOT))}, {ROOT: 0.0}
        for node, (above, (x, _)) in enumerate(zip(tree.parent, tree.drawn, strict=True)):
            if above in likelihood and (p := scored.law(above)[x]) > bars[above]:
                likelihood[node] = likelihood[above] + math.log(p)
                bars[node] = self._bar(scored.law(node))
        node = max(likelihood, key=lambda n: (tree.depth(n), likelihood[n]))
        law = scored.law(node)
        passing = law.only(law.p > bars[node])
        return Verdict(node, passing.draw(chance, scored.at(Role.RESIDUAL, node)).token)

    def _bar(self, law: Law) -> float:
        return min(self.epsilon, self.alpha * math.exp(-entropy(law, -law.scores.log_softmax(0))))
