"""Cautious next-token prediction: several trials where the model is not sure."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, claims
from ...core.law import Law
from ...core.option import expect, real, whole
from ...core.warp.truncate import entropy
from ...core.warp.warp import Warp
from .branch import Branch
from .rollout import Border


@claims(
    HEURISTIC,
    trials=lambda rule: [Branch(rule(2, 0.0, 0.5), border=Border(("b",), 2))],
    paper="2507.03038",
    systems=("CNTP",),
)
@dataclass(frozen=True)
class Cautious:
    """Draw more ways to go on the higher the entropy, write each to the next pause, and keep the most likely.

    There are ⌊1 + (`trials` − 1)·(H − low)/(high − low)⌋ of them, H the entropy here. A pause is a punctuation mark,
    wherever in a token it stands; the most likely is the one with the lowest perplexity.

    Claim: HEURISTIC. One trial, or an entropy that is never above `low`, is plain decoding, seed for seed.
    Cost: up to `trials` rows per token, and tokens that are dropped.
    """

    trials: int = 10
    low: float = 0.01
    high: float = 1.5

    def __post_init__(self) -> None:
        expect(whole(self.trials, 1), "cautious:trials", self.trials, "a whole number from 1 on")
        expect(real(self.low, 0), "cautious:low", self.low, "an entropy in nats from 0 on")
        expect(real(self.high) and self.high > self.low, "cautious:high", self.high, "an entropy above `low`")

    def view(self, warp: Warp) -> Warp:
        return warp

    def ways(self, law: Law, chance: Chance, position: int) -> list[int]:
        share = min(1.0, max(0.0, (entropy(law, law.log_z - law.scores) - self.low) / (self.high - self.low)))
        count = int(1 + (self.trials - 1) * share)
        if count == 1:
            return [law.draw(chance, At(position, Role.PICK)).token]
        return [law.draw(chance, At(position, Role.DRAFT, i, position)).token for i in range(count)]

    def follow(self, law: Law, chance: Chance, at: At) -> int:
        return law.draw(chance, at).token
