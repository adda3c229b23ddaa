"""The target as its own drafter: it fills a block of holes in one look, and reads the block left to right to check."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import TARGET, Look
from ...core.canvas import Canvas, Field
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.errors import BadRequest
from ...core.law import Drawn
from ...core.tree import NOTHING, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from ..verify.block import block
from ..verify.rejection import rejection


@claims(
    LAW,
    trials=lambda _: [Speculate(Denoised(2), rejection, budget=2), Speculate(Denoised(2), block, budget=2)],
    paper="2603.25702",
    systems=("S2D2 (always verified)",),
)
@dataclass(frozen=True)
class Denoised(Memoryless):
    """Draw each of the next `depth` tokens from its law in one look at as many holes.

    The holes are drawn independently given the text, so that each token's own law is the q of rejection, and what comes
    out is the law of reading left to right: a model that fills blocks and reads left to right checks itself. The first
    token is drawn from the law that checks it. S2D2's routing, which lets unsure blocks pass unchecked, is `confident`.

    Claim: LAW under rejection, of the model's left-to-right law. Cost: one look and one forward per round.
    """

    depth: int = 4

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise BadRequest(f"denoised:depth={self.depth} cannot be used; expected a depth from 1 on")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        start, depth = len(prefix), min(self.depth, budget)
        return (yield from drawn_block(prefix, depth, chance, At(start, Role.DRAFT, round=start)))


def drawn_block(
    prefix: Prefix, depth: int, chance: Chance, first: At, by: str = TARGET, fresh: int | None = None
) -> Proposing:
    """A chain of tokens for as many holes, each drawn from its own law in one look, the first at address `first`.

    What is from place `fresh` on is computed anew, if told; the rest is seen as it was.
    """
    depth = prefix.ahead(depth)
    if depth < 1:
        return NOTHING
    canvas = Canvas.blank(prefix.text, depth)
    anew = None if fresh is None else frozenset(range(fresh, len(canvas)))
    field: Field = yield Look(canvas, by=by, fresh=anew)
    drawn: list[Drawn] = []
    for i in range(depth):
        law = possible(prefix, field[first.position + i])
        if law is None:
            break
        drawn.append(law.draw(chance, first._replace(position=first.position + i)))
        prefix = prefix.then((drawn[-1].token,))
    return Tree.chain(drawn)
