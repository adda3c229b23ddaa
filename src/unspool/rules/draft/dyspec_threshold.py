"""A second model drafts every slot that is likely enough to be reached, a whole level in one forward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ...core.asks import Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.law import Drawn, Law, chosen
from ...core.option import expect, real, whole
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .chain import DRAFT
from .siblings import is_greedy, likeliest_of


@claims(
    LAW,
    name="dyspec_threshold",
    trials=lambda rule: [Speculate(rule(0.3, 2), rejection, budget=3)],
    paper="2410.11744",
    systems=("DySpec (threshold, level by level)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class DySpecThreshold(Memoryless):
    """Open every slot of value above `least`, level by level, to a depth of `depth`.

    Values are those of `dyspec`: below a node y ~ R of a slot of value v the slot v · R(y), beside it v · (1 − R(y)).
    With a threshold instead of a heap the order no longer matters, so that all nodes of a level are scored together:
    `least` about 1 over the nodes that are wanted gives nearly the heap's tree for as many forwards as it has levels.
    Which slots a level opens first, where the budget ends, is decided by their values. At temperature 0 the tokens are
    the draft's most probable ones, chosen, and v · Q(y) is their value.

    Claim: LAW under rejection. Cost: one forward of the draft model per level.
    """

    least: float = 0.05
    depth: int = 8

    def __post_init__(self) -> None:
        expect(real(self.least, 0, 1), "dyspec_threshold:least", self.least, "a value from 0 to 1; usual is 1/nodes")
        expect(whole(self.depth, 1), "dyspec_threshold:depth", self.depth, "a whole number of levels from 1 on")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree, start = NOTHING, len(prefix)
        level = [(1.0, ROOT, prefix)]
        for depth in range(prefix.ahead(self.depth)):
            if not level or len(tree) >= budget:
                break
            scores: Scores = yield Score(tree, by=DRAFT)
            below: list[tuple[float, int, Prefix]] = []
            for value, parent, here in level:
                first = At(start + depth, Role.DRAFT, len(tree), start)
                opened = self._opened(here, scores.law(parent), value, chance, first)
                for drawn, reached in islice(opened, budget - len(tree)):
                    tree, kid = tree.grow(drawn, parent)
                    if reached > self.least:
                        below.append((reached, kid, here.then((drawn.token,))))
            level = sorted(below, key=lambda slot: -slot[0])
        return tree

    def _opened(
        self, prefix: Prefix, raw: Law, value: float, chance: Chance, first: At
    ) -> Iterator[tuple[Drawn, float]]:
        """The tokens of one place's slots, each with the value of the slot below it."""
        law = possible(prefix, raw)
        if law is not None and is_greedy(law):
            soft = prefix.soften(raw)
            most = min(raw.size, int(value / self.least) if self.least else raw.size)  # more cannot be above it
            reached = [(chosen(x), value * soft[x]) for x in likeliest_of(prefix, raw, most)]
            yield from (slot for slot in reached if slot[1] > self.least)
            return
        k = 0
        while law is not None and not law.is_empty() and value > self.least:
            drawn = law.draw(chance, first._replace(k=first.k + k))
            p, k = law[drawn.token], k + 1
            yield drawn, value * p
            value, law = value * (1 - p), law.without(drawn.token)
