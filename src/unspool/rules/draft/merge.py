"""Several drafters in one tree: the nodes that are most likely to stand, under one budget."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from operator import itemgetter
from typing import Any, TypeAlias

from ...core.asks import Ask, Scores
from ...core.chance import Chance
from ...core.claim import SEED, Method, claims
from ...core.cost import FREE, Cost
from ...core.errors import BadRequest
from ...core.tree import Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source, check_drafter
from ...loops.speculate import Speculate
from ..grow.best_first import Twig, best_first, planted
from .bigram_recycling import BigramRecycling
from .chain import Chain
from .composite import CompositeDraft, CompositeSource, proposed
from .guide import Guide, Kids, Planted
from .lookup import Lookup
from .prefilled import Prefilled
from .rsd_c import RSDC
from .suffix import Suffix

PROMISED = 2.0  # tokens that must be promised in vain before half of what is promised is believed
FADE = 0.98  # what a mark is worth when the next one is made, so that a text that changes its ways is followed


class Trust:
    """How much of what a source promises before any try comes true here: g = (hits + w) / (promised + w), at most 1.

    What one kind of its tokens has shown is told of all others by it, so that a source that does not foresee a text is
    left alone after a few rounds, and not after some for each kind. Old marks fade. The calibration is ours.
    """

    __slots__ = ("hits", "promised", "value")

    def __init__(self) -> None:
        self.hits = self.promised = 0.0
        self.value = 1.0

    def mark(self, believed: float, hit: bool) -> None:
        """Take note of a try, and of what was believed of it beforehand."""
        self.hits, self.promised = FADE * self.hits + hit, FADE * self.promised + believed
        self.value = min(1.0, (self.hits + PROMISED) / (self.promised + PROMISED))


class Rate:
    """How likely a token of one kind is to stand: r = (hits + w·r') / (tries + w), with r' believed before any try.

    With a trust g it is g·r' that is believed. Old marks fade. The calibration is ours.

    Cost: three numbers per kind.
    """

    __slots__ = ("believed", "hits", "tries", "trust", "weight")

    def __init__(self, believed: float, weight: float = 6.0, trust: Trust | None = None) -> None:
        self.believed, self.weight, self.trust = believed, weight, trust
        self.hits = self.tries = 0.0

    @property
    def value(self) -> float:
        """The rate."""
        return self.given(self.believed if self.trust is None else self.believed * self.trust.value)

    def mark(self, hit: bool) -> None:
        """Take note that a token of this kind was tried."""
        self.hits, self.tries = FADE * self.hits + hit, FADE * self.tries + 1
        if self.trust is not None:
            self.trust.mark(self.believed, hit)

    def given(self, believed: float) -> float:
        """The rate, had this been believed."""
        return (self.hits + self.weight * believed) / (self.tries + self.weight)


def _trials() -> Iterator[Method]:
    yield Speculate(Prefilled(Merge(Suffix(depth=2), BigramRecycling())), budget=2)
    yield Speculate(Merge(Lookup(2, 2, 2), Lookup(1, 1, 2)), budget=2)
    yield Speculate(Merge(Lookup(1, 1, 2), Chain(1)), budget=2)
    yield Speculate(Merge(RSDC((2,)), Lookup(1, 1, 1)), budget=1)


@claims(SEED, trials=lambda _: _trials(), systems=("one priority tree for all sources",))
@dataclass(frozen=True)
class Merge(CompositeDraft):
    """The nodes of several drafters that are most likely to stand, in one tree under one budget.

    A source says how sure it is of a token given the path before it; if it does not, 1 / (2 + k) is taken for the k-th
    child. What that is worth is counted on the text as it goes on, by voice and class of sureness, and again by what
    all sources together say of a token: a path that several propose is one node, believed with 1 − Π (1 − r) until its
    own record says otherwise. What no record tells of yet is believed as far as its source has kept its word. Siblings
    get what is left of 1, the likeliest first. The estimate of a path is the product, and `cost` decides how many nodes
    pay. Copies and remembered laws are looked up only where the tree gets to; other sources propose a tree of their own
    first. The calibration is ours.

    Which nodes enter depends on their tokens. So a drawn token must not keep the law it was drawn from: given the tree
    it is a chosen one, and its law becomes a point mass. With that the tree is exact for every verifier whose noise the
    drafters do not use, at the price of sample matching's acceptance, P(x), for drawn tokens.

    Claim: SEED under sample matching. Cost: that of all drafters, and one heap.
    """

    drafts: tuple[Draft, ...]
    cost: Cost

    def __init__(self, *drafts: Draft, cost: Cost = FREE) -> None:
        if not drafts:
            raise BadRequest("merge needs at least one drafter to ask, as in Merge(Lookup(3, 2, 5), Chain(4))")
        for draft in drafts:
            check_drafter("merge:drafts", draft)
        object.__setattr__(self, "drafts", drafts)
        object.__setattr__(self, "cost", cost)

    @property
    def parts(self) -> tuple[Draft, ...]:
        return self.drafts

    def holding(self, parts: tuple[Draft, ...]) -> Draft:
        return Merge(*parts, cost=self.cost)

    def begin(self, prefix: Prefix) -> Source:
        return Merged(self.sources(prefix), self.cost)


Stand: TypeAlias = list[tuple[Guide, list[list[Rate]], Any]]
"""The guides that still have something to say below a path, with their records and the place of each."""

Heard: TypeAlias = tuple[list[Rate], Kids]
"""What a voice says, and its record by class of sureness."""

STEPS = tuple(2 ** (-half / 2) for half in range(12, 0, -1))  # from class to class, the first of all under 2^-6


class Merged(CompositeSource):
    """The sources of one request with their records."""

    def __init__(self, sources: Iterable[Source], cost: Cost) -> None:
        super().__init__(sources)
        self.cost = cost
        self.start, self.root = 0, list[Any]()
        self._guides = [source if isinstance(source, Guide) else None for source in self.sources]
        self._records: list[list[list[Rate]]] = []  # by guide, voice and class of sureness
        self._agreed: dict[tuple[Rate, ...], Rate] = {}

    def join(self, source: Source) -> None:
        """Have one source more from the next round on."""
        self.sources += (source,)
        self._guides.append(source if isinstance(source, Guide) else None)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from self.gather(prefix, budget, chance)
        return planted(self.best(budget, self.cost))

    def gather(self, prefix: Prefix, budget: int, chance: Chance) -> Generator[Ask, Any, None]:
        """Have every source speak; who is no guide proposes a tree of its own."""
        self.start, self.root = len(prefix), []
        for source, guide in zip(self.sources, self._guides, strict=True):
            if guide is None:
                self.add(Planted((yield from proposed(source, prefix, budget, chance))), prefix)
            else:
                self.add(guide, prefix)

    def add(self, guide: Guide, prefix: Prefix) -> None:
        """Have one guide more, until the round is over."""
        if len(self.root) == len(self._records):
            classes, trust = [2**-0.25 * step for step in (*STEPS, 1.0)], Trust()
            self._records.append([[Rate(voice * sure, trust=trust) for sure in classes] for voice in guide.voices])
        self.root.append((guide, self._records[len(self.root)], guide.start(prefix)))

    def best(self, budget: int, cost: Cost, ahead: float = 0.0) -> list[Twig]:
        """The nodes that are most likely to stand, as many as pay where drafting has cost `ahead` already."""
        return best_first(self.below, budget, cost, self.root, _then, ahead)

    def below(self, stand: Stand) -> Iterator[tuple[int, float]]:
        """The tokens that may follow a path, with what their record makes of them, together never more than sure."""
        heard = _heard(stand)
        alone, kids = heard[0] if len(heard) == 1 else (None, self._together(heard))
        left = rate = 1.0
        for token, p in kids:
            rate = min(p if alone is None else alone[bisect(STEPS, p)].value, rate, left)
            left -= rate
            yield token, rate

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Mark what every source said, drafted or not: the text tells what would have stood."""
        stand = self.root
        for token in prefix.text[self.start :]:
            for other, said in _said(_heard(stand)).items():
                for rate in said:
                    rate.mark(other == token)
                if len(said) > 1:
                    self._agreement(said).mark(other == token)
            stand = _then(stand, token)
        self.start, self.root = len(prefix), []
        super().learn(prefix, tree, scores)

    def _together(self, heard: list[Heard]) -> Kids:
        said = _said(heard).items()
        rated = [(token, rates[0].value if len(rates) == 1 else self._believed(rates)) for token, rates in said]
        return sorted(rated, key=itemgetter(1), reverse=True)

    def _believed(self, said: list[Rate]) -> float:
        return self._agreement(said).given(1 - prod([1 - rate.value for rate in said]))

    def _agreement(self, said: list[Rate]) -> Rate:
        return self._agreed.setdefault(tuple(said), Rate(0.0))


def _then(stand: Stand, token: int) -> Stand:
    return [(guide, record, there) for guide, record, here in stand if (there := guide.then(here, token)) is not None]


def _heard(stand: Stand) -> list[Heard]:
    heard: list[Heard] = []
    for guide, record, place in stand:
        voice, kids = guide.below(place)
        if kids:
            heard.append((record[voice], kids))
    return heard


def _said(heard: list[Heard]) -> dict[int, list[Rate]]:
    """For each token the rates of those who say it."""
    said: dict[int, list[Rate]] = {}
    for rates, kids in heard:
        for token, sure in kids:
            said.setdefault(token, []).append(rates[bisect(STEPS, sure)])
    return said
