"""A second model drafts a chain with plain decoding's own noise, so that both models tend to say the same."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.chance import At, Chance, Role
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing
from ...loops.speculate import Speculate
from .chain import DRAFT, drawn_chain


@claims(
    SEED,
    trials=lambda _: [Speculate(Coupled(1), budget=1), Speculate(Coupled(2), budget=2)],
    paper="2408.07978",
    systems=("Drafter-invariant speculation (shared uniforms)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class Coupled(Memoryless):
    """Draw `depth` tokens from a draft model with the random numbers that plain decoding will use at those positions.

    x = Q⁻¹(u), and sample matching asks whether P⁻¹(u) = x: accepted with probability Σ over x of |I_P(x) ∩ I_Q(x)|,
    where I(x) is the interval of x in the cumulative law by token id. This is the shared-uniform coupling, not the
    exponential race of the papers: it has no bound like (1 − TV)/(1 + TV), since mass moved between low ids shifts all
    intervals above. With P = Q everything stands.

    Claim: SEED under sample matching; LAW under rules that decide token by token, such as rejection. A rule that weighs
    a token by those after it would meet their noise again in the next round, so `Speculate` refuses it.
    Cost: `depth` forwards of the draft model per round.
    """

    depth: int = 4
    reuses_noise = True  # the numbers of a position are plain decoding's, in whatever round

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise BadRequest(f"coupled:depth={self.depth} cannot be used; expected a depth from 1 on")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        return (yield from drawn_chain(prefix, min(self.depth, budget), chance, At(len(prefix), Role.PICK)))
