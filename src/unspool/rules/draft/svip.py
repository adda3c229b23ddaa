"""A chain that ends where the draft model itself is unsure, by the entropy of its law."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from ...core.claim import LAW, claims
from ...core.law import Law
from ...core.option import expect, real, whole
from ...core.warp.truncate import entropy
from ...loops.speculate import Speculate
from ..grow.draft_length import Length
from ..verify.rejection import rejection
from .chain import DRAFT
from .paced import Paced


@claims(
    LAW,
    name="svip",
    trials=lambda rule: [Speculate(Paced(rule(0.3, longest=2)), rejection, budget=2)],
    paper="2411.18462",
    systems=("SVIP (self-verification length policy)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class SVIP(Length):
    """Draw on as long as √(`scale`·H(Q)) is at most `doubt`; the first token beyond is drawn too, and is the last.

    A token from Q is accepted with probability at least about 1 − √(c·H(Q)), so the bound says before the token is
    drawn what it will be worth. `scale` and `doubt` are those of the paper's code. At temperature 0 the law is the
    draft's own, before temperature.

    Claim: LAW under rejection. Cost: one entropy per drafted token beside its forward of the draft model.
    """

    doubt: float = 0.3
    scale: float = 0.15
    longest: int = 40

    def __post_init__(self) -> None:
        check_entropy_rule("svip", self.scale, self.longest)
        expect(real(self.doubt, 0), "svip:doubt", self.doubt, "a number from 0 on; usual is 0.3")

    def most(self, state: None) -> int:
        return self.longest

    def last(self, state: None, law: Law) -> bool:
        return refusal_bound(law, self.scale) > self.doubt


def refusal_bound(law: Law, scale: float) -> float:
    """√(c·H(Q)): how often a token drawn from Q is refused, at most and about, for a draft that resembles its target.

    Pinsker's inequality bounds 1 − E[accepted] = TV(P, Q) by √(KL(Q ‖ P)/2); both papers put c·H(Q) for the divergence,
    which no draft can know.
    """
    return sqrt(scale * entropy(law, -law.scores.log_softmax(0)))


def check_entropy_rule(name: str, scale: float, longest: int) -> None:
    """Refuse numbers that no rule by entropy can use."""
    expect(real(scale, 0), f"{name}:scale", scale, "a number from 0 on; usual is 0.15 or 0.2")
    expect(whole(longest, 1), f"{name}:longest", longest, "a whole number of tokens from 1 on")
