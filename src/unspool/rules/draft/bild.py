"""A little model writes greedily for as long as it is sure."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Score, Scores
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.law import chosen
from ...core.option import expect, real, whole
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from .chain import DRAFT


@claims(
    SEED,
    trials=lambda _: [Speculate(BiLD(0.5, 2), budget=2)],
    paper="2302.07863",
    systems=("BiLD (fallback)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class BiLD(Memoryless):
    """Write a draft model's most probable token until it has less than `sure` or `steps` tokens stand.

    The tokens were chosen, not drawn, so their laws are point masses, and the unsure one may be dropped: nothing was
    sampled. How sure it is, is read from the draft's law before warps, which greedy decoding would hide.

    Claim: SEED under sample matching; `rollback` is the rule of its paper. Cost: one forward of the draft model per
    token and one for the token that is dropped.
    """

    sure: float = 0.6
    steps: int = 10

    def __post_init__(self) -> None:
        expect(real(self.sure, 0, 1), "little:sure", self.sure, "a probability; usual is 0.6")
        expect(whole(self.steps, 1), "little:steps", self.steps, "a whole number from 1 on; usual is 10")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree, node = NOTHING, ROOT
        for _ in range(prefix.ahead(min(self.steps, budget))):
            scores: Scores = yield Score(tree, by=DRAFT)
            law = scores.law(node)
            shaped = possible(prefix, law)
            if shaped is None or law[shaped.best] < self.sure:
                break
            token = shaped.best
            tree, node = tree.grow(chosen(token), node)
            prefix = prefix.then((token,))
        return tree
