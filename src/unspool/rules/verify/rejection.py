"""Speculative sampling: accept a drafted token as often as the target allows, then make up for the rest."""

from __future__ import annotations

from ...core.asks import Verdict
from ...core.chance import Chance, Role
from ...core.claim import LAW, claims
from ...core.tree import ROOT
from ...core.verifier import Kernel, on_device, token_by_token
from ...core.warp.warp import Scored
from .verify_trials import drafted


@claims(
    LAW,
    trials=drafted,
    paper="2211.17192",
    systems=("Speculative decoding (Leviathan)", "Speculative sampling (Chen)", "SpecInfer", "RSD-C"),
)
@on_device(Kernel.REJECTION)
@token_by_token
def rejection(scored: Scored, chance: Chance) -> Verdict:
    """Accept x ~ q with probability min(1, p(x)/q(x)), else p ← norm[p − q]₊; siblings in the order they were drawn.

    Each round of the inner loop leaves the law exact: min(p, q) + (1 − Σ min(p, q)) · norm[p − q]₊ = p. The laws q
    travel with their tokens, so siblings may be drawn with or without replacement, or be point masses.

    Claim: LAW. Cost: one coin per sibling tried, one residual per rejection, one draw.
    """
    tree, node, law = scored.tree, ROOT, scored.law(ROOT)
    while kids := tree.kids(node):
        for k, kid in enumerate(kids):
            x, q = tree.drawn[kid]
            ratio = law[x] / q[x] if q[x] > 0 else 0.0  # a token that q cannot give was not drawn from it
            if chance.coin(min(1.0, ratio), scored.at(Role.ACCEPT, node, k)):
                node, law = kid, scored.law(kid)
                break
            law = law.minus(q)
        else:
            break
    return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)
