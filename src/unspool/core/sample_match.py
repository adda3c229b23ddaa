"""Sample matching: draw what plain decoding would draw, and follow it down the tree as far as it was foreseen."""

from __future__ import annotations

from .asks import Verdict
from .chance import Chance, Role
from .tree import ROOT
from .verifier import Kernel, on_device, token_by_token
from .warp.warp import Scored


@on_device(Kernel.SAMPLE_MATCH)
@token_by_token
def sample_match(scored: Scored, chance: Chance) -> Verdict:
    """Draw y ~ P at each node from plain decoding's own noise; if y was drafted go there, else stop with y.

    Pr(accept x) = P(x), which is optimal for any deterministic tree: E[accepted] = Σ over nodes of P(path).

    Claim: SEED. The text is the one plain decoding gives for this seed, whatever was drafted.
    Cost: one draw per accepted token and one more.
    """
    node = ROOT
    while True:
        token = scored.law(node).draw(chance, scored.at(Role.PICK, node)).token
        kid = scored.tree.child(node, token)
        if kid is None:
            return Verdict(node, token)
        node = kid
