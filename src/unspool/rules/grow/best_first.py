"""The one tree builder: take the most probable path next, and stop where another node no longer pays.

For a tree whose tokens were chosen, not drawn, sample matching accepts a node with the probability of its path, so the
best tree of n nodes is the prefix-closed set with the n largest path probabilities. Builders differ in how they
estimate those, and in nothing else: a draft model's laws (OPT-Tree, EAGLE-2), hit rates by source (`Merge`), positional
acceptance rates (Sequoia, where the rates fall), counts of a suffix tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from ...core.cost import FREE, Cost
from ...core.law import chosen
from ...core.tree import ROOT, Tree

Below: TypeAlias = Callable[[Any], Iterable[tuple[int, float]]]
"""What may follow a place: tokens, each with its estimated probability given the place, the likeliest first."""

Then: TypeAlias = Callable[[Any, int], Any]
"""The place one token further."""


class Twig(NamedTuple):
    """A chosen token of a tree: its parent in the order of choice (ROOT for none), and its path's probability."""

    token: int
    parent: int
    p: float


def further(path: tuple[int, ...], token: int) -> tuple[int, ...]:
    """Where a place is the path that leads to it."""
    return (*path, token)


def best_first(
    below: Below, budget: int, cost: Cost = FREE, start: Any = (), then: Then = further, ahead: float = 0.0
) -> list[Twig]:
    """The at most `budget` nodes with the largest path probabilities, best first; no more than pay under `cost`.

    Nobody is asked for more of them once no number of nodes as probable as the next one would pay; `ahead` is what
    drafting has cost already.

    p̂(path) = Π p̂(token | path before it). A child is never more probable than its parent, so one heap gives the
    optimum, and every parent before its children. Of equal siblings the first comes first.

    `below` and `then` may take anything for a place that tells them where they are, from `start` on. Of siblings only
    the best waits in the heap; the next one is asked for when that one is taken, so whoever can name them one by one
    works for no more than is looked at.

    Cost: one heap with at most two entries per node taken.
    """
    taken: list[Twig] = []
    heap: list[tuple[float, int, int, int, float, Any, Iterator[tuple[int, float]]]] = []

    def offer(parent: int, reach: float, place: Any, kids: Iterator[tuple[int, float]]) -> None:
        """The next of these siblings; the others wait behind it."""
        for token, p in kids:
            if p > 0:
                heappush(heap, (-reach * p, next(turn), token, parent, reach, place, kids))
            break

    turn = count()  # of equally probable nodes, what was offered first
    tokens, times = 1.0, [t + ahead for t in _times(cost, max(budget, 0))]
    best = 1.0 / times[0]
    if budget > 0:
        offer(ROOT, 1.0, start, iter(below(start)))
    while heap and len(taken) < budget:
        minus, _, token, parent, reach, place, kids = heappop(heap)
        left = times[len(taken) + 1 :]  # what forwards over one node more take, over two more, …
        if not any(tokens - minus * more > best * time for more, time in enumerate(left, 1)):
            break
        taken.append(Twig(token, parent, -minus))
        tokens -= minus
        best = max(best, tokens / left[0])
        if len(taken) < budget:
            offer(parent, reach, place, kids)
            here = then(place, token)
            offer(len(taken) - 1, -minus, here, iter(below(here)))
    return taken[: worth([twig.p for twig in taken], cost, ahead)]


def worth(estimates: Sequence[float], cost: Cost, ahead: float = 0.0) -> int:
    """How many of these nodes, given best first, make the most tokens per time.

    argmax over n of (1 + Σ p̂ of the first n) / (t(1 + n) + ahead), where `ahead` is what drafting has cost already.
    Where t is convex this stops at the first node with p̂ / Δt below the rate so far (Dinkelbach's rule); taking the
    maximum is also right where t has steps.
    """
    times = _times(cost, len(estimates))
    tokens, best, most = 1.0, 1.0 / (times[0] + ahead), 0
    for n, p in enumerate(estimates, 1):
        tokens += p
        rate = tokens / (times[n] + ahead)
        if rate > best:
            best, most = rate, n
    return most


@lru_cache(maxsize=1 << 10)
def _times(cost: Cost, nodes: int) -> list[float]:
    """What forwards over the last token and so many nodes take; asked in every round, so worked out once."""
    return [cost(1 + n) for n in range(nodes + 1)]


def planted(twigs: Sequence[Twig]) -> Tree:
    """The tree of these nodes; its tokens were chosen, so their laws are point masses."""
    return Tree(tuple([chosen(twig.token) for twig in twigs]), tuple([twig.parent for twig in twigs]))
