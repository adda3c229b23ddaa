"""Greedy verification: follow the most probable token down the tree."""

from __future__ import annotations

from ..asks import Verdict
from ..chance import Chance
from ..claim import ARGMAX, claims
from ..tree import ROOT
from ..warp.warp import Scored
from .token_by_token import token_by_token
from .trials import drafted


@claims(
    ARGMAX,
    trials=drafted,
    paper="1811.03115",
    systems=("Blockwise parallel decoding (exact)",),
)
@token_by_token
def greedy(scored: Scored, chance: Chance) -> Verdict:
    """Follow argmax P from node to node; stop with the first one that was not drafted.

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
