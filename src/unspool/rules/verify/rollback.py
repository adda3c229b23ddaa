"""Rollback: the big model lets the little one write, and takes back what it finds too surprising."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Verdict
from ...core.chance import Chance
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real
from ...core.tree import ROOT
from ...core.verifier import token_by_token
from ...core.warp.warp import Scored
from ...loops.speculate import Speculate
from .. import draft


@claims(
    HEURISTIC,
    trials=lambda rule: [Speculate(draft.BiLD(0.5, 2), rule(), budget=2)],
    paper="2302.07863",
    systems=("BiLD (rollback)",),
    needs=("draft",),
)
@token_by_token
@dataclass(frozen=True)
class Rollback:
    """Accept drafted tokens up to the first with −log P(x) > `surprise` that is not argmax P; there write argmax P.

    Every position is tested, so `surprise` = 0 is greedy decoding; the reference implementation looks only at the first
    surprising one. It judges the law after all warps but a temperature of 0, which would leave no token but the best
    any chance, and draws nothing. In a tree it reads the path of eldest siblings.

    Claim: HEURISTIC. It approximates greedy text; the gap that is printed is the one to sampling, and so contains
    greedy decoding's own. Cost: one log-probability and one max per accepted token; no randomness.
    """

    surprise: float = 5.0

    def __post_init__(self) -> None:
        expect(
            self.surprise == float("inf") or real(self.surprise, 0),
            "rollback:surprise",
            self.surprise,
            "nats from 0 (greedy) on; usual is 2 to 5",
        )

    def __call__(self, scored: Scored, chance: Chance) -> Verdict:
        tree, node = scored.tree, ROOT
        while True:
            law, kids = scored.soft(node), scored.tree.kids(node)
            x = tree.drawn[kids[0]].token if kids else None
            if x is None or (x != law.best and (law[x] == 0 or -law.logprob(x) > self.surprise)):
                return Verdict(node, law.best)
            node = kids[0]
