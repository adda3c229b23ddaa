"""Several drafters as one: the first that has something to say, or all of them in one tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ..asks import Scores
from ..chance import Chance
from ..claim import SEED, Method, claims
from ..errors import BadRequest
from ..grow.best_first import best_first, planted
from ..grow.cost import FREE, Cost
from ..tree import NOTHING, ROOT, Tree
from ..warp.warp import Prefix
from .draft import Draft, Proposing, Source
from .lookup import Lookup
from .recycle import Recycle
from .suffix import Suffix


def build_either(least: int = 2, nodes: int = 16) -> Method:
    """A copy where the last `least` tokens stood before, else recycled tokens, under the walk."""
    from ..decode.speculate import Speculate

    return Speculate(Either(Suffix(depth=nodes, least=least), Recycle()), budget=nodes)


def _either_trials() -> Iterator[Method]:
    from ..decode.speculate import Speculate
    from .chain import Chain

    yield build_either(least=2, nodes=2)
    yield Speculate(Either(Lookup(2, 2, 2), Lookup(1, 1, 1)))
    yield Speculate(Either(Lookup(2, 2, 2), Chain(1)))


@claims(SEED, trials=lambda _: _either_trials(), build=build_either, systems=("lookup-first routers",))
@dataclass(frozen=True)
class Either:
    """The tree of the first drafter that proposes anything.

    The laws stay as they were drawn, and which drafter is asked depends on what the ones before it proposed, never on a
    token that is used; so a joined draft is exact under whatever verifier each of its parts is.

    Claim: SEED under the walk. Cost: that of the drafters that are asked.
    """

    drafts: tuple[Draft, ...]

    def __init__(self, *drafts: Draft) -> None:
        object.__setattr__(self, "drafts", _at_least_one("either", drafts))

    def begin(self, prefix: Prefix) -> Source:
        """A fresh source of each drafter."""
        return _First([draft.begin(prefix) for draft in self.drafts])


class _First:
    def __init__(self, sources: list[Source]) -> None:
        self.sources, self.asked = sources, list[Source]()

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        self.asked = []
        for source in self.sources:
            self.asked.append(source)
            tree = yield from source.propose(prefix, budget, chance)
            if len(tree):
                return tree
        return NOTHING

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        for source in self.asked:  # only those: a source counts on being asked before it is told
            source.learn(prefix, tree, scores)


def build_merge(nodes: int = 16) -> Method:
    """Copies and recycled tokens in one tree, under the walk."""
    from ..decode.speculate import Speculate

    return Speculate(Merge(Suffix(depth=nodes), Recycle()), budget=nodes)


def _merge_trials() -> Iterator[Method]:
    from ..decode.speculate import Speculate
    from .bush import Bush
    from .chain import Chain

    yield build_merge(nodes=2)
    yield Speculate(Merge(Lookup(2, 2, 2), Lookup(1, 1, 2)), budget=2)
    yield Speculate(Merge(Lookup(1, 1, 2), Chain(1)), budget=2)
    yield Speculate(Merge(Bush((2,)), Lookup(1, 1, 1)), budget=1)


@claims(SEED, trials=lambda _: _merge_trials(), build=build_merge, systems=("one priority tree for all sources",))
@dataclass(frozen=True)
class Merge:
    """The nodes of several drafters that are most likely to stand, in one tree under one budget.

    A node's estimate is the product of hit rates on its path: r = (hits + 2·r') / (tries + 2) for the k-th child of a
    source at a depth, counted on the text as it goes on, with r' the rate one level above, 1 / (2 + k) above all. Equal
    paths are one node, 1 − Π (1 − r); siblings that would add up to more than 1 are scaled down. `cost` decides how
    many nodes pay. The calibration is ours.

    Which nodes enter depends on their tokens. So a drawn token must not keep the law it was drawn from: given the tree
    it is a chosen one, and its law becomes a point mass. With that the tree is exact for every verifier whose noise the
    drafters do not use, at the price of the walk's acceptance, P(x), for drawn tokens.

    Claim: SEED under the walk. Cost: that of all drafters, and one heap.
    """

    drafts: tuple[Draft, ...]
    cost: Cost

    def __init__(self, *drafts: Draft, cost: Cost = FREE) -> None:
        object.__setattr__(self, "drafts", _at_least_one("merge", drafts))
        object.__setattr__(self, "cost", cost)

    def begin(self, prefix: Prefix) -> Source:
        """A fresh source of each drafter, and no hits yet."""
        return _Merged([draft.begin(prefix) for draft in self.drafts], self.cost)


Slot = tuple[int, int, int]  # source, depth, rank among its siblings


class _Merged:
    def __init__(self, sources: list[Source], cost: Cost) -> None:
        self.sources, self.cost = sources, cost
        self.hits: defaultdict[Slot, int] = defaultdict(int)
        self.tries: defaultdict[Slot, int] = defaultdict(int)
        self.start, self.trees = 0, list[Tree]()

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        self.start, self.trees = len(prefix), []
        for source in self.sources:
            tree = yield from source.propose(prefix, budget, chance)
            self.trees.append(tree)
        return planted(best_first(self._below, budget, self.cost))

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Every source is marked on its own tree: the text says what would have stood, merged or not."""
        for s, own in enumerate(self.trees):
            node = ROOT
            for depth, token in enumerate(prefix.text[self.start :]):
                for rank, kid in enumerate(own.kids(node)):
                    self.tries[s, depth, rank] += 1
                    self.hits[s, depth, rank] += own.drawn[kid].token == token
                found = own.child(node, token)
                if found is None:
                    break
                node = found
        self.trees = []
        for source in self.sources:
            source.learn(prefix, tree, scores)

    def _below(self, path: tuple[int, ...]) -> list[tuple[int, float]]:
        miss: dict[int, float] = {}
        for s, tree in enumerate(self.trees):
            node: int | None = ROOT
            for token in path:
                node = None if node is None else tree.child(node, token)
            for rank, kid in enumerate([] if node is None else tree.kids(node)):
                token = tree.drawn[kid].token
                miss[token] = miss.get(token, 1.0) * (1 - self._rate(s, len(path), rank))
        total = max(1.0, sum(1 - m for m in miss.values()))
        return [(token, (1 - m) / total) for token, m in miss.items()]

    def _rate(self, source: int, depth: int, rank: int) -> float:
        rate = 1 / (2 + rank)
        for level in range(depth + 1):
            slot = source, level, rank
            rate = (self.hits[slot] + 2 * rate) / (self.tries[slot] + 2)
        return rate


def _at_least_one(name: str, drafts: tuple[Draft, ...]) -> tuple[Draft, ...]:
    if not drafts:
        raise BadRequest(f"{name} needs at least one drafter to ask, as in {name.title()}(Lookup(3, 2, 5), Chain(4))")
    return drafts
