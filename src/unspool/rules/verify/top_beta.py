"""Top-β verification: what is drafted stands if it is nearly as good as the greedy token."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Verdict
from ...core.chance import Chance
from ...core.claim import HEURISTIC, claims
from ...core.law import Law
from ...core.option import expect, real, whole
from ...core.tree import ROOT
from ...core.verifier import token_by_token
from ...core.warp.warp import Scored
from .verify_trials import chained


@claims(
    HEURISTIC,
    name="top_beta",
    trials=lambda rule: chained(rule()),
    paper="2203.16487",
    systems=("SpecDec and GAD++ (Spec-Verification)", "Blockwise parallel decoding (top-k)"),
)
@token_by_token
@dataclass(frozen=True)
class TopBeta:
    """Accept x if it is among the `beta` most probable and log max P − log P(x) ≤ `tau`; else write argmax P.

    With an infinite tau this is the top-k test of blockwise decoding, with beta = 1 it is greedy verification. It
    judges the law after all warps but a temperature of 0, which would leave the best token alone, and draws nothing.

    Claim: HEURISTIC. It approximates greedy text; the gap that is printed is the one to sampling, and so contains
    greedy decoding's own. Cost: one top-β selection per accepted token and one more; no randomness.
    """

    beta: int = 3
    tau: float = 1.0

    def __post_init__(self) -> None:
        expect(whole(self.beta, 1), "top_beta:beta", self.beta, "a whole number from 1 on; usual is 3 to 5")
        expect(self.tau == float("inf") or real(self.tau, 0), "top_beta:tau", self.tau, "nats from 0 on; usual is 1")

    def __call__(self, scored: Scored, chance: Chance) -> Verdict:
        tree, node = scored.tree, ROOT
        while True:
            law = scored.soft(node)
            good = [kid for token in self._good(law) if (kid := tree.child(node, token)) is not None]
            if not good:
                return Verdict(node, law.best)
            node = good[0]

    def _good(self, law: Law) -> list[int]:
        floor = law.logprob(law.best) - self.tau
        return [token for token in law.top(self.beta) if law[token] > 0 and law.logprob(token) >= floor]
