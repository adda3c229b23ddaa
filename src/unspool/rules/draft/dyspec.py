"""A second model drafts where it is likeliest to be reached: the slot first, then its token."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from ...core.asks import Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.errors import BadRequest
from ...core.law import Law
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .chain import DRAFT
from .likeliest import Likeliest
from .siblings import is_greedy

LEVELS = 6  # of a tree at temperature 0


@claims(
    LAW,
    trials=lambda _: [Speculate(DySpec(0.5), rejection, budget=3)],
    paper="2410.11744",
    systems=("DySpec",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class DySpec(Memoryless):
    """Open the slot that is likeliest to be reached, draw its token from what the draft's law has left there, repeat.

    A slot of value v with law R gives a node y ~ R, below it a slot of value v · R(y), and beside it a slot of value
    v · (1 − R(y)) with R without y. Slots below `least` stay closed; values never rise, so the heap's order is the best
    one for these estimates. The slot is chosen before its token is drawn, which keeps the tree exact. At temperature 0
    nothing is drawn, and the heap would take the nodes of largest path probability one draft forward each: `likeliest`
    finds the same ones level by level, as long as a level adds more than `least` expected tokens.

    Claim: LAW under rejection. Cost: one forward of the draft model whenever the best slot has not been scored, over
    all nodes that have not.
    """

    least: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.least < 1:
            raise BadRequest(f"dyspec:least={self.least} cannot be used; expected a value from 0 up to 1")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree, start = NOTHING, len(prefix)
        scores: Scores = yield Score(tree, by=DRAFT)
        prefixes: dict[int, Prefix] = {ROOT: prefix}
        slots: list[tuple[float, int, int, Law | None]] = [(-1.0, 0, ROOT, None)]  # −value, age, parent, law if known
        while slots and len(tree) < budget and -slots[0][0] > self.least:
            minus_value, _, parent, law = heappop(slots)
            if law is None:
                if parent >= len(scores.after):
                    scores = yield Score(tree, by=DRAFT)
                law = possible(prefixes[parent], scores.law(parent))
                if law is None:
                    continue
                if is_greedy(law):
                    return (yield from Likeliest(budget, LEVELS, self.least).propose(prefix, budget, chance))
            drawn = law.draw(chance, At(start + tree.depth(parent), Role.DRAFT, len(tree), start))
            tree, kid = tree.grow(drawn, parent)
            prefixes[kid] = prefixes[parent].then((drawn.token,))
            p, rest = law[drawn.token], law.without(drawn.token)
            if prefixes[kid].ahead(1):
                heappush(slots, (minus_value * p, 2 * len(tree), kid, None))
            if not rest.is_empty():
                heappush(slots, (minus_value * (1 - p), 2 * len(tree) + 1, parent, rest))
        return tree
