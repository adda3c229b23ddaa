"""Traversal verification: block verification for trees, from the leaves to the root."""

from __future__ import annotations

from ...core.asks import Verdict
from ...core.chance import Chance, Role
from ...core.claim import LAW, claims
from ...core.tree import ROOT
from ...core.warp.warp import Scored
from .block import residual
from .verify_trials import branched


@claims(LAW, trials=branched, paper="2505.12398", systems=("Traversal verification",))
def traversal(scored: Scored, chance: Chance) -> Verdict:
    """Offer each path from its leaf upwards; what a refused child leaves over goes to its siblings and its parent.

    α(root) = 1, α(child) = min(1, α·P(x)/Q(x)). A leaf stands with its whole path with probability α, and the next
    token is drawn from P there. If it does not, its parent goes on with P ← norm[α·P − Q]₊ and α ← S/(S + 1 − α),
    S = Σ[α·P − Q]₊, for the next sibling, and as a leaf itself when there is none. Each sibling brings its own Q, so
    they may be drawn with or without replacement. On a chain this is `block`, on one level it is `rejection`.

    Claim: LAW. Cost: at most one residual and one coin per node, one draw.
    """
    verdict = _offer(scored, chance, ROOT, 1.0)
    assert verdict is not None, "the root stands with α = 1"
    return verdict


def _offer(scored: Scored, chance: Chance, node: int, alpha: float) -> Verdict | None:
    """The verdict if the text stops at `node` or below, given that its prefix may be emitted with probability α."""
    if alpha == 0:  # nothing below can stand, and a warp may have no law for it
        return None
    kids = scored.tree.kids(node)
    if kids and scored.ends(node):  # whatever was drafted below, this is a leaf
        kids = []
    law = scored.law(node) if kids else None  # of a leaf it is wanted only if the text stops there
    for kid in kids:
        assert law is not None
        x, q = scored.tree.drawn[kid]
        verdict = _offer(scored, chance, kid, min(1.0, alpha * law[x] / q[x]) if q[x] > 0 else 0.0)
        if verdict is not None:
            return verdict
        law, alpha = residual(law, q, alpha)
    # cousins share a position, so a coin is told apart by its node
    if chance.coin(alpha, scored.at(Role.ACCEPT, node, max(node, 0))):
        return Verdict(node, (law or scored.law(node)).draw(chance, scored.at(Role.RESIDUAL, node)).token)
    return None
