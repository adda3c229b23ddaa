"""A draft model with a tokenizer of its own drafts by the strings of the target's tokens."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.option import expect, whole
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .chain import DRAFT, drawn_chain

STRINGS = "slrs"  # the draft model, in the target's tokens by their strings


@claims(
    LAW,
    trials=lambda _: [Speculate(SLRS(2), rejection, budget=2)],
    paper="2502.05202",
    systems=("SLRS (string-level rejection sampling)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class SLRS(Memoryless):
    """Draw `depth` tokens from ψ, the law that a draft model's text gives the target's tokens by their strings.

    ψ(t) = Pr(t is the longest token of the target that the draft's text begins with), summed over all ways in which
    the draft's tokens spell it. In the paper ψ(t) is the probability to write exactly t; those events are not disjoint
    ("a" and then "b" writes both "a" and "ab"), so that their sum can exceed 1 and nothing can be drawn from it. The
    longest token makes them disjoint. The prefix tree is walked within bounds (`run/covering.py`): what is not followed
    counts as if the text ended there, which is again a law, and the one that is drawn from.

    Claim: LAW under rejection, whatever the bounds. Cost: at the default bounds two forwards of the draft model per
    drafted token, the second over four branches. To follow every branch takes as many rows as the draft has tokens that
    begin a token of the target, to the power of the looks: practical for toys alone.
    """

    depth: int = 4

    def __post_init__(self) -> None:
        expect(whole(self.depth, 1), "slrs:depth", self.depth, "a whole number of tokens from 1 on")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        start, depth = len(prefix), min(self.depth, budget)
        return (yield from drawn_chain(prefix, depth, chance, At(start, Role.DRAFT, round=start), by=STRINGS))
