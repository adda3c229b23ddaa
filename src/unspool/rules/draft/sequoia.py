"""A second model fills a static shape."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, Method, claims
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing
from ...loops.speculate import Speculate
from ..grow.tree_shape import Ranks, TreeShape
from ..verify.rejection import rejection
from .chain import DRAFT
from .siblings import siblings


def _trial(*paths: Ranks) -> Method:
    return Speculate(Sequoia(TreeShape.of(paths)), rejection)


@claims(LAW, trials=lambda _: [_trial((0,), (1,), (1, 0))], paper="2402.12374", systems=("Sequoia",), needs=(DRAFT,))
@dataclass(frozen=True)
class Sequoia(Memoryless):
    """Below every node draw as many different tokens as the shape has children there, without replacement.

    The k-th child of the shape is the k-th token drawn; each carries the draft's law without its elder siblings. At
    temperature 0 it is the draft's k-th best. With `grow.sequoia` for the shape this is Sequoia; `RSDC` is the case of
    equal widths on a level.

    Claim: LAW under rejection. Cost: one forward of the draft model per level.
    """

    shape: TreeShape

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree, start = NOTHING, len(prefix)
        level: list[tuple[int, Ranks, Prefix]] = [(ROOT, (), prefix)]
        for depth in range(prefix.ahead(self.shape.depth)):
            level = [(node, ranks, here) for node, ranks, here in level if self.shape.width(ranks)]
            if not level or len(tree) >= budget:
                break
            scores: Scores = yield Score(tree, by=DRAFT)
            below: list[tuple[int, Ranks, Prefix]] = []
            for node, ranks, here in level:
                first, count = At(start + depth, Role.DRAFT, len(tree), start), self.shape.width(ranks)
                found = siblings(here, scores.law(node), min(count, budget - len(tree)), chance, first)
                for k, drawn in enumerate(found):
                    tree, kid = tree.grow(drawn, node)
                    below.append((kid, (*ranks, k), here.then((drawn.token,))))
            level = below
        return tree
