"""RSD-C: a second model drafts a tree of several different tokens at each level."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.errors import BadRequest
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .chain import DRAFT
from .siblings import siblings


@claims(
    LAW,
    name="rsd_c",
    trials=lambda _: [Speculate(RSDC((2,)), rejection, budget=64), Speculate(RSDC((2, 1)), rejection, budget=64)],
    paper="2402.14160",
    systems=("RSD-C (constant branching)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class RSDC(Memoryless):
    """At level i draw `widths[i]` different tokens below every node, without replacement.

    Each sibling carries the law it was drawn from: the draft's law without its elder siblings. At temperature 0 the
    siblings are the draft's most probable tokens.

    Claim: LAW under rejection. Cost: one forward of the draft model per level.
    """

    widths: tuple[int, ...] = (3, 2, 1)

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            shown = "+".join(map(str, self.widths))
            raise BadRequest(f"rsd_c:widths={shown} cannot be used; expected a width from 1 on per level, as 3+2+1")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree, start = NOTHING, len(prefix)
        level = {ROOT: prefix}
        for depth, width in enumerate(self.widths[: prefix.ahead(len(self.widths))]):
            scores: Scores = yield Score(tree, by=DRAFT)
            below: dict[int, Prefix] = {}
            for node, here in level.items():
                first = At(start + depth, Role.DRAFT, len(tree), start)
                for drawn in siblings(here, scores.law(node), min(width, budget - len(tree)), chance, first):
                    tree, kid = tree.grow(drawn, node)
                    below[kid] = here.then((drawn.token,))
            level = below
        return tree
