"""RSD-C: a second model drafts a tree of several different tokens at each level."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.chance import Chance
from ...core.claim import LAW, claims
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .chain import DRAFT
from .levels import level_by_level, refuse_widths
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
        refuse_widths("rsd_c", self.widths)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        return level_by_level(self.widths, siblings, prefix, budget, chance)
