"""Best-of-N: several whole texts, of which the best is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, claims
from ...core.law import Law
from ...core.option import expect, whole
from ...core.warp.warp import Warp
from .branch import Branch
from .rollout import Border

FOREVER = 1 << 20  # tokens: no border but the end of the text


@claims(HEURISTIC, trials=lambda rule: [Branch(rule(2), border=Border((), FOREVER))], systems=("Best-of-N",))
@dataclass(frozen=True)
class Several:
    """Draw `count` whole texts and keep the one with the best mark: best-of-N.

    As texts of one request they share the prompt. With `choose=agreement` a text's mark is what it has in common with
    the others (minimum Bayes risk); to choose among finished outputs, by votes too, see `unspool.rules.search.choose`.

    Claim: HEURISTIC: the divergence from plain decoding is at most log N − (N − 1)/N. One text is plain decoding's.
    Cost: `count` rows per token.
    """

    count: int = 8

    def __post_init__(self) -> None:
        expect(whole(self.count, 1), "several:count", self.count, "a whole number of texts from 1 on")

    def view(self, warp: Warp) -> Warp:
        return warp

    def ways(self, law: Law, chance: Chance, position: int) -> list[int]:
        return [law.draw(chance, At(position, Role.PICK, i)).token for i in range(self.count)]

    def follow(self, law: Law, chance: Chance, at: At) -> int:
        """Drawn; those of the first with plain decoding's own numbers."""
        return law.draw(chance, At(at.position, Role.PICK, at.k)).token


def divergence_of_best(count: int) -> float:
    """The bound on the divergence of best-of-N from the law it draws from: log N − (N − 1)/N nats."""
    return math.log(count) - (count - 1) / count
