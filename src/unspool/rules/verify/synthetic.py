"""Acceptance as it is wanted instead of as it is: what a draft would save if so many of its tokens stood."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Verdict
from ...core.chance import Chance, Role
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real
from ...core.tree import ROOT
from ...core.verifier import token_by_token
from ...core.warp.warp import Scored
from .verify_trials import chained


@claims(HEURISTIC, trials=lambda rule: chained(rule(0.5)), systems=("vLLM (synthetic acceptance)",))
@token_by_token
@dataclass(frozen=True)
class Synthetic:
    """Accept each drafted token with probability `rate`, whatever the target thinks of it, siblings in their order.

    For planning: the time of a run, with its forwards of draft and target, is that of a draft which is accepted so
    often, before there is such a draft. A token that warps forbid is not accepted.

    Claim: HEURISTIC. The text is nobody's. Cost: one coin per token tried, one draw.
    """

    rate: float = 0.7

    def __post_init__(self) -> None:
        expect(real(self.rate, 0, 1), "synthetic:rate", self.rate, "a probability; what a planned draft is to reach")

    def __call__(self, scored: Scored, chance: Chance) -> Verdict:
        tree, node = scored.tree, ROOT
        while not scored.ends(node):
            law = scored.soft(node)  # at temperature 0 too a token is accepted that is not the likeliest
            kid = next((kid for k, kid in enumerate(tree.kids(node)) if law[tree.drawn[kid].token] > 0
                        and chance.coin(self.rate, scored.at(Role.ACCEPT, node, k))), None)  # fmt: skip
            if kid is None or scored.ends(kid):
                break
            node = kid
        return Verdict(node, scored.law(node).draw(chance, scored.at(Role.RESIDUAL, node)).token)
