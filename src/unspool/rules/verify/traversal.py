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
    they may be drawn with or without replacement. On a chain this is `block`,
    coin by coin, on one level it is `rejection`.

    Claim: LAW. Cost: at most one residual and one coin per node, one draw.
    """
    path = [_Offer(scored, ROOT, 1.0)]
    while True:
        here = path[-1]
        if here.kids:
            alpha = here.reach(scored, here.kids[-1])
            if alpha > 0:  # else nothing below can stand, and a warp may have no law for it
                path.append(_Offer(scored, here.kids[-1], alpha))
            else:
                here.refuse(scored)
        elif chance.coin(here.alpha, scored.at(Role.ACCEPT, here.node, _apart(scored, here.node))):
            law = here.law or scored.law(here.node)
            return Verdict(here.node, law.draw(chance, scored.at(Role.RESIDUAL, here.node)).token)
        else:
            path.pop()  # the root stands with α = 1, so there is one above
            path[-1].refuse(scored)


def _apart(scored: Scored, node: int) -> int:
    """What tells the coin of a node from those of its cousins at the same position; 0 on a chain, as in `block`."""
    return node + 1 - scored.tree.depth(node)


class _Offer:
    """A node whose prefix may be emitted with probability α, what is left of its law, and its children still to ask."""

    def __init__(self, scored: Scored, node: int, alpha: float) -> None:
        kids = scored.tree.kids(node)
        if kids and scored.ends(node):  # whatever was drafted below, this is a leaf
            kids = []
        self.node, self.alpha, self.kids = node, alpha, kids[::-1]
        self.law = scored.law(node) if kids else None  # of a leaf it is wanted only if the text stops there

    def reach(self, scored: Scored, kid: int) -> float:
        """With which probability the prefix that goes on with this child may be emitted."""
        assert self.law is not None  # it has children
        x, q = scored.tree.drawn[kid]
        return min(1.0, self.alpha * self.law[x] / q[x]) if q[x] > 0 else 0.0

    def refuse(self, scored: Scored) -> None:
        """Go on without the child that was asked last."""
        assert self.law is not None  # it has children
        self.law, self.alpha = residual(self.law, scored.tree.drawn[self.kids.pop()].law, self.alpha)
