"""A second model drafts a chain with the waiting times that the target's tokens will race with."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.errors import BadRequest
from ...core.race import Racing
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing
from ...loops.speculate import Speculate
from ..verify.race import race
from .chain import DRAFT, drawn_chain


@claims(
    LAW,
    trials=lambda _: [Speculate(Raced(1), race, budget=1), Speculate(Raced(2), race, budget=2)],
    paper="2408.07978",
    systems=("Drafter-invariant speculation (exponential race)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class Raced(Memoryless):
    """Draft x = argmin Eₓ / Q(x) for `depth` tokens, with the waiting times E that the rule `race` uses there.

    Accepted with probability ≥ (1 − TV)/(1 + TV), whatever the order of the tokens, where `coupled` has no such bound.
    With P = Q everything stands.

    Claim: LAW under `race`, which gives one text per seed with any drafter. Cost: `depth` forwards of the draft model
    per round, and for each an exponential per token of the vocabulary, which the target then uses again.
    """

    depth: int = 4
    reuses_noise = True  # the numbers of a position are plain decoding's, in whatever round

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise BadRequest(f"raced:depth={self.depth} cannot be used; expected a depth from 1 on")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        first = At(len(prefix), Role.PICK)
        return (yield from drawn_chain(prefix, min(self.depth, budget), Racing(chance), first))
