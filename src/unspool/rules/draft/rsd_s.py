"""RSD-S: a second model drafts a tree, at every level its first different prefixes, however they branch."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.asks import Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.errors import BadRequest
from ...core.law import Law, chosen
from ...core.tree import NOTHING, ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .chain import DRAFT
from .siblings import is_greedy


@claims(
    LAW,
    name="rsd_s",
    trials=lambda _: [Speculate(RSDS(2, 2), rejection, budget=3)],  # with 4 nodes: tests/rules/draft/test_grow.py
    paper="2402.14160",
    systems=("RSD-S (stochastic beam search)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class RSDS(Memoryless):
    """At level l keep the first `width` different prefixes of length l of an endless stream of drawn texts.

    This is stochastic beam search (Gumbel-top-k over sequences) without Gumbels: perturbed log-probabilities are
    arrival times of independent texts, and a beam's order is the order of first arrivals. Given the order b₁ … b_W of a
    level, what comes next after b₁ … b_j have arrived is
      the next prefix b_{j+1}, with its first child,   with weight 1 − Σ over i ≤ j of q(b_i), or
      another child of b_i, i ≤ j,                      with weight q(b_i) · (1 − q(children of b_i so far)).
    A child is then drawn from the draft's law without its elder siblings. That it is drawn was decided before, so the
    tree stays exact; the formulation by arrivals is ours, the method the paper's. At temperature 0 it is beam search by
    the draft's own law.

    Claim: LAW under rejection. Cost: one forward of the draft model per level.
    """

    width: int = 3
    depth: int = 4

    def __post_init__(self) -> None:
        if self.width < 1 or self.depth < 1:
            raise BadRequest(
                f"rsd_s:width={self.width},depth={self.depth} cannot be used; expected a width and a depth from 1 on"
            )

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree, start = NOTHING, len(prefix)
        level = [_Beam(ROOT, 1.0, prefix)]
        for depth in range(prefix.ahead(self.depth)):
            width = min(self.width, budget - len(tree))
            if width < 1:
                break
            scores: Scores = yield Score(tree, by=DRAFT)
            for beam in level:
                law = possible(beam.prefix, scores.law(beam.node))
                if law is None:
                    return tree  # the stream of texts has no next level
                beam.rest = law
            if is_greedy(level[0].rest):
                tree, level = _best(tree, level, scores, width)
                continue
            below: list[_Beam] = []
            arrived = 0  # beams of this level that the stream has shown so far
            while len(below) < width:
                i = _next(level, arrived, chance, At(start + depth, Role.ORDER, self.width * len(tree), start))
                if i is None:
                    break  # every continuation is in the tree
                arrived = max(arrived, i + 1)
                drawn = level[i].rest.draw(chance, At(start + depth, Role.DRAFT, len(tree), start))
                tree, kid = tree.grow(drawn, level[i].node)
                below.append(level[i].child(kid, drawn.token))
            level = below
        return tree


@dataclass
class _Beam:
    """A prefix of the stream: its node and probability, and the law and share of its children not seen yet."""

    node: int
    q: float
    prefix: Prefix
    rest: Law = field(init=False)
    left: float = 1.0

    def child(self, node: int, token: int) -> _Beam:
        """The prefix one token longer; that token is no longer among those not seen."""
        share = self.left * self.rest[token]
        self.rest = self.rest.without(token)
        self.left = 0.0 if self.rest.is_empty() else max(0.0, self.left - share)
        return _Beam(node, self.q * share, self.prefix.then((token,)))


def _best(tree: Tree, level: list[_Beam], scores: Scores, width: int) -> tuple[Tree, list[_Beam]]:
    """The `width` most probable continuations of all beams, chosen: what the stream shows first without noise."""
    offered: list[tuple[float, int, _Beam]] = []
    for beam in level:
        soft = beam.prefix.soften(scores.law(beam.node))
        offered += [(beam.q * soft[x], x, beam) for x in soft.top(min(width, soft.size)) if soft[x] > 0]
    below: list[_Beam] = []
    for q, token, beam in sorted(offered, key=lambda each: -each[0])[:width]:
        tree, kid = tree.grow(chosen(token), beam.node)
        below.append(_Beam(kid, q, beam.prefix.then((token,))))
    return tree, below


def _next(level: list[_Beam], arrived: int, chance: Chance, at: At) -> int | None:
    """Which beam the next new text belongs to: one of those that have arrived, or the one after them."""
    weights = [beam.q * beam.left for beam in level[:arrived]]
    if arrived < len(level):
        weights.append(max(1 - sum(beam.q for beam in level[:arrived]), level[arrived].q))
    total = sum(weights)
    for i, weight in enumerate(weights):
        if weight > 0 and chance.coin(min(1.0, weight / total), at._replace(k=at.k + i)):
            return i
        total -= weight
    return len(weights) - 1 if arrived < len(level) else None
