"""A second model drafts a chain."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Draw, Drew, Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.errors import BadRequest
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from ..verify.rejection import rejection

DRAFT = "draft"


@claims(
    LAW,
    trials=lambda _: [Speculate(Chain(1), rejection, budget=1), Speculate(Chain(2), rejection, budget=2)],
    paper="2211.17192",
    systems=(
        "Speculative decoding (draft model)",
        "TLI (a draft model with another tokenizer)",
        "DFlash, DSpark, P-EAGLE, MTP, MLP speculator (trained drafters)",
    ),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class Chain(Memoryless):
    """Draw `depth` tokens one after the other from a draft model, under the request's own warps.

    The small model writes ahead, a forward for each token, and one forward of the target scores all of its tokens at
    once. The law that each was drawn from is kept beside it, as verifiers weigh the target's P against it.

    Claim: LAW under rejection. Cost: `depth` forwards of the draft model per round.
    """

    depth: int = 4

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise BadRequest(f"chain:depth={self.depth} cannot be used; expected a depth from 1 on")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        start, depth = len(prefix), min(self.depth, budget)
        return (yield from drawn_chain(prefix, depth, chance, At(start, Role.DRAFT, round=start)))


def drawn_chain(prefix: Prefix, depth: int, chance: Chance, first: At, by: str = DRAFT) -> Proposing:
    """A chain that a draft model draws, the first token at address `first` and each next one a position further."""
    depth = prefix.ahead(depth)
    drew: Drew | None = (yield Draw(prefix, depth, chance, first, by)) if depth > 0 else None
    if drew is not None:
        return drew.tree
    tree, node = NOTHING, ROOT
    for i in range(depth):
        scores: Scores = yield Score(tree, by=by)
        law = possible(prefix, scores.law(node))
        if law is None:
            break
        drawn = law.draw(chance, first._replace(position=first.position + i))
        tree, node = tree.grow(drawn, node)
        prefix = prefix.then((drawn.token,))
    return tree
