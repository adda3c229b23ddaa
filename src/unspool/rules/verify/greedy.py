"""Greedy verification: follow the most probable token down the tree."""

from __future__ import annotations

from ...core.asks import Verdict
from ...core.chance import Chance
from ...core.claim import ARGMAX, claims
from ...core.tree import ROOT
from ...core.verifier import Kernel, on_device, token_by_token
from ...core.warp.warp import Scored
from .verify_trials import drafted


@claims(ARGMAX, trials=drafted, paper="1811.03115", systems=("Blockwise parallel decoding (exact)",))
@on_device(Kernel.GREEDY)
@token_by_token
def greedy(scored: Scored, chance: Chance) -> Verdict:
    """Follow argmax P from node to node; stop with the first one that was not drafted.

    So each round brings the drafted tokens that greedy decoding would have written, and one token more, which is the
    target's own.

    Claim: ARGMAX. The text is the greedy one, whatever warps leave as the most probable token.
    Cost: one max per accepted token and one more; no randomness.
    """
    node = ROOT
    while True:
        token = scored.law(node).best
        kid = scored.tree.child(node, token)
        if kid is None:
            return Verdict(node, token)
        node = kid
