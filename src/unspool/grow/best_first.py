"""The one tree builder: take the most probable path next, and stop where another node no longer pays.

For a tree whose tokens were chosen, not drawn, the walk accepts a node with the probability of its path, so the best
tree of n nodes is the prefix-closed set with the n largest path probabilities. Builders differ in how they estimate
those, and in nothing else: a draft model's laws (OPT-Tree, EAGLE-2), hit rates by source (`Merge`), positional
acceptance rates (Sequoia, where the rates fall), counts of a suffix tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from ..law import Drawn, Law
from ..tree import ROOT, Tree
from .cost import FREE, Cost

Below: TypeAlias = Callable[[tuple[int, ...]], Iterable[tuple[int, float]]]
"""What may follow a drafted path: tokens, each with its estimated probability given the path."""


class Twig(NamedTuple):
    """A chosen token of a tree: its parent in the order of choice (ROOT for none), and its path's probability."""

    token: int
    parent: int
    p: float


def best_first(below: Below, budget: int, cost: Cost = FREE) -> list[Twig]:
    """The at most `budget` nodes with the largest path probabilities, best first; no more than pay under `cost`.

    p̂(path) = Π p̂(token | path before it). A child is never more probable than its parent, so one heap gives the
    optimum, and every parent before its children. Equal ones come in the order in which they were offered.

    Cost: one heap of the nodes that were offered.
    """
    taken: list[Twig] = []
    heap: list[tuple[float, int, int, tuple[int, ...]]] = []
    offered = 0

    def offer(parent: int, path: tuple[int, ...], reach: float) -> None:
        nonlocal offered
        for token, p in below(path):
            if p > 0:
                heappush(heap, (-reach * min(p, 1.0), offered, parent, (*path, token)))
                offered += 1

    if budget > 0:
        offer(ROOT, (), 1.0)
    while heap and len(taken) < budget:
        minus_p, _, parent, path = heappop(heap)
        taken.append(Twig(path[-1], parent, -minus_p))
        if len(taken) < budget:
            offer(len(taken) - 1, path, -minus_p)
    return taken[: worth([twig.p for twig in taken], cost)]


def worth(estimates: Sequence[float], cost: Cost, ahead: float = 0.0) -> int:
    """How many of these nodes, given best first, make the most tokens per time.

    argmax over n of (1 + Σ p̂ of the first n) / (t(1 + n) + ahead), where `ahead` is what drafting has cost already.
    Where t is convex this stops at the first node with p̂ / Δt below the rate so far (Dinkelbach's rule); taking the
    maximum is also right where t has steps.
    """
    tokens, best, count = 1.0, 1.0 / (cost(1) + ahead), 0
    for n, p in enumerate(estimates, 1):
        tokens += p
        rate = tokens / (cost(1 + n) + ahead)
        if rate > best:
            best, count = rate, n
    return count


def planted(twigs: Sequence[Twig]) -> Tree:
    """The tree of these nodes; its tokens were chosen, so their laws are point masses."""
    return Tree(tuple(Drawn(twig.token, Law.point(twig.token)) for twig in twigs), tuple(twig.parent for twig in twigs))
