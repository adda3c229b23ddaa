"""Sequential zeroing: ask for one candidate after the other, and strike those that were refused."""

from __future__ import annotations

from ...core.asks import Verdict
from ...core.chance import Chance, Role
from ...core.claim import LAW, claims
from ...core.tree import ROOT
from ...core.verifier import token_by_token
from ...core.warp.warp import Scored
from .verify_trials import chained


@claims(
    LAW,
    trials=chained,
    paper="2401.15077",
    systems=("EAGLE (sampling)", "Lookahead decoding (sampling)", "SGLang (target only)"),
)
@token_by_token
def zeroing(scored: Scored, chance: Chance) -> Verdict:
    """Accept x with probability P(x), else P(x) ← 0 and normalise; siblings in the order they stand in.

    Π over refused y of (1 − P(y)/R_y) · P(x)/R_x telescopes to P(x), R = mass not yet struck. So the law of the text
    and of the accepted length is sample matching's, with one coin per candidate where that has one draw per node. The
    laws that tokens were drawn from are not looked at: candidates may come from anywhere, but a drawn one stands as
    often as P allows, Σ P·Q, which is less than rejection's Σ min(P, Q).

    Claim: LAW. Cost: one coin per candidate tried, one draw.
    """
    tree, node, law = scored.tree, ROOT, scored.law(ROOT)
    while kids := tree.kids(node):
        for k, kid in enumerate(kids):
            x = tree.drawn[kid].token
            if chance.coin(law[x], scored.at(Role.ACCEPT, node, k)):
                node, law = kid, scored.law(kid)
                break
            rest = law.without(x)
            law = law if rest.is_empty() else rest  # P(x) = 1 up to rounding: x is all there is
        else:
            break
    return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)
