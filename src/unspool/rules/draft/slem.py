"""A draft model with a tokenizer of its own writes text, which is cut into the target's tokens."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Score, Scores
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.law import chosen
from ...core.option import expect, whole
from ...core.tree import NOTHING, ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing
from ...loops.speculate import Speculate
from .chain import DRAFT

PROSE = "slem"  # the draft model in its own tokens
RETOLD = "retold"  # what it says, in the target's


@claims(
    SEED,
    trials=lambda _: [Speculate(SLEM(1), budget=3), Speculate(SLEM(3), budget=9)],
    paper="2502.05202",
    systems=("SLEM (string-level exact match)", "transformers (assistant with another tokenizer)"),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class SLEM(Memoryless):
    """Let a draft model write its `depth` most probable tokens as text, and draft that text in the target's tokens.

    The text is cut by the target's tokenizer together with the end of what stands already; how, is the runner's
    business. The tokens were chosen, not drawn, so their laws are point masses, and a token that was cut otherwise than
    the target would only fails to stand. The request's warps speak of the target's tokens and do not shape this text.

    Claim: SEED under sample matching. Cost: `depth` forwards of the draft model per round.
    """

    depth: int = 6

    def __post_init__(self) -> None:
        expect(whole(self.depth, 1), "slem:depth", self.depth, "a whole number of the draft's tokens from 1 on")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree, node, most = NOTHING, ROOT, prefix.ahead(budget)
        said: tuple[int, ...] = ()
        while len(tree) < self.depth and len(said) < most:
            scores: Scores = yield Score(tree, by=PROSE, want=(RETOLD,))
            law = scores.law(node)
            if law.is_empty():
                break
            said = tuple(x for x in scores.hidden[RETOLD][node].tolist() if x >= 0)
            tree, node = tree.grow(chosen(law.best), node)
        return Tree.chain([chosen(x) for x in said[: max(0, most)]])
