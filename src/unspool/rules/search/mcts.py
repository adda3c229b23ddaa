"""Planning: a tree of beginnings, grown where the finished texts below them were good."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from ...core.asks import Ask, Decoding, GiveWay
from ...core.chance import Chance
from ...core.claim import HEURISTIC, Branching, Watchable, claims
from ...core.law import NEVER, Law, LeadingLaw
from ...core.option import expect, real, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from .beam import BeamPool
from .beam_cache import BeamCache
from .candidates import among_best, leading, worth_of
from .length_norm import Power, likely
from .reward import Grader, Reward, likelihood
from .search_text import Text, told, without_greedy

HELD = 8  # beginnings that stay in the cache: those that were visited most


@claims(HEURISTIC, trials=lambda rule: [rule(kids=2, rollouts=4)], paper="2303.05510", systems=("PG-TD",))
@dataclass(frozen=True)
class Mcts(Branching, Watchable):
    """Grow a tree of beginnings by P-UCB, write each new one on to its end, and hand out the text of most reward.

    A rollout goes down from the prompt, at every beginning s to the token a among its `kids` best with the highest
    Q(s, a) + β(s)·P(a|s)·√(log N(s)) / (1 + N(s, a)), where β(s) = log((N(s) + `base` + 1) / `base`) + `explore`, Q the
    highest reward that was seen below a (0 before the first), N how often it was passed, and P the law over these
    tokens alone. The first beginning that is new is written on by beam search of `width` and rewarded, and all above
    it take note. The very first rollout writes on the prompt itself, so one rollout is beam search.

    `reward` is any function from a finished text to a number, best from 0 to 1, and is asked once for every text;
    without one, texts are wanted that are likely by exp(mean log p). A reward of `enough` ends the search. No law is
    asked for twice, so that what was written before costs nothing to write again. `watch` is told all finished texts,
    best first.

    Claim: HEURISTIC, and greedy decoding with one kid, or with one rollout of one beam.
    Cost: a row for every beginning that was not seen before, and for what has left the cache above it; at most `rows`
    in all, then the best so far. Of as many laws as it spends rows it keeps the best tokens.
    """

    RANKS = True

    reward: Reward | None = None
    kids: int = 3
    rollouts: int = 256
    width: int = 1
    base: float = 10.0
    explore: float = 4.0
    enough: float = math.inf
    rows: int = 4000

    def __post_init__(self) -> None:
        called = self.reward is None or callable(self.reward)
        expect(called, "mcts:reward", self.reward, "None, or a function from a text to a number")
        expect(whole(self.kids, 1), "mcts:kids", self.kids, "a whole number of tokens from 1 on")
        expect(whole(self.rollouts, 1), "mcts:rollouts", self.rollouts, "a whole number of texts from 1 on")
        expect(whole(self.width, 1), "mcts:width", self.width, "a whole number of beams from 1 on")
        expect(real(self.base) and self.base > 0, "mcts:base", self.base, "a finite number above 0; usual is 10")
        expect(real(self.explore, 0), "mcts:explore", self.explore, "a finite number from 0 on; usual is 4")
        BeamCache(self.rows)

    @property
    def texts(self) -> int:
        return HELD + self.width

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        plan = SearchTree(BeamCache(self.rows), stop, self.width, self.kids)
        grade = likelihood if self.reward is None else Grader(self.reward, stop)
        root = SearchNode(Text.begin(text, without_greedy(warp), stop))
        nodes, found = [root], dict[tuple[int, ...], Text]()
        try:
            for _ in range(self.rollouts):
                yield GiveWay()  # what was written before asks for nothing
                path, node = self._selected(root, plan)
                if node.visits == 0:
                    nodes.append(node)
                held = sorted(nodes, key=lambda one: -one.visits)[:HELD]
                best = yield from plan.finished(node.text, [one.text for one in held])
                if plan.spent:
                    break
                value = NEVER  # of a dead end
                if best is not None:
                    value = grade(best)
                    found.setdefault(best.tokens, best.ranked(value))
                for above, edge in path:
                    above.visits += 1
                    edge.best = max(edge.best, value) if edge.visits else value
                    edge.visits += 1
                node.visits = max(node.visits, 1)
                if value >= self.enough:
                    break
        finally:
            ranked = sorted(found.values(), key=lambda text: -text.score) or plan.under_way
            self.watch(ranked)
        return (yield from told(ranked, plan.grove.forwards))

    def _selected(self, root: SearchNode, plan: SearchTree) -> tuple[list[tuple[SearchNode, SearchEdge]], SearchNode]:
        """The way down to the first beginning that is new, or to a text that has ended."""
        node, path = root, list[tuple["SearchNode", "SearchEdge"]]()
        while node.visits and node.text.reason is None:
            node.kids = node.kids or plan.kids(node.text, self.kids)
            if not node.kids:
                break
            edge = max(node.kids, key=lambda kid: self._bound(node, kid))  # of equals the likelier
            path.append((node, edge))
            if edge.node is None:
                edge.node = SearchNode(plan.then(node.text, edge.token))
            node = edge.node
        return path, node

    def _bound(self, node: SearchNode, kid: SearchEdge) -> float:
        """P-UCB: what is hoped for below a token."""
        keen = math.log((node.visits + self.base + 1) / self.base) + self.explore
        return kid.best + keen * kid.prior * math.sqrt(math.log(node.visits)) / (1 + kid.visits)


@dataclass(eq=False)
class SearchNode:
    """A beginning in the tree; `visits` is 0 until a text was written from it."""

    text: Text
    visits: int = 0
    kids: list[SearchEdge] = field(default_factory=list)


@dataclass(eq=False)
class SearchEdge:
    """A token after a beginning: its share among the kids, how often it was passed, and the best reward below."""

    token: int
    prior: float
    visits: int = 0
    best: float = 0.0
    node: SearchNode | None = None


@dataclass(eq=False)
class SearchTree:
    """What was asked of the model so far: the law after every beginning, and the end of every text that was begun.

    Of a law its `most` best tokens are asked for, or as many as the beams take.
    """

    grove: BeamCache
    stop: Stop
    width: int
    most: int
    laws: dict[tuple[int, ...], tuple[Law, Law]] = field(default_factory=dict)  # before and after warps
    ends: dict[tuple[int, ...], Text] = field(default_factory=dict)
    under_way: list[Text] = field(default_factory=list)
    spent: bool = False  # whether the budget has ended a text

    def finished(self, start: Text, held: Iterable[Text]) -> Generator[Ask, Any, Text | None]:
        """The text that beam search writes from here; None if nothing may follow, or if the budget does not suffice."""
        if start.reason is not None:
            return start
        if start.tokens in self.ends:
            return self.ends[start.tokens]
        pool = BeamPool(self.width, Power(1.0), likely, [start.ranked(start.logp)])
        while pool.live:
            self.under_way = [text for text in pool.live if text.tokens]
            new = [text for text in pool.live if text.tokens not in self.laws]
            if new:
                if not self.grove.affords(new):
                    self.spent = True
                    return None
                for text, raw in zip(new, (yield from self.grove.score(new, held)), strict=True):
                    yield GiveWay()
                    self.laws[text.tokens] = self._kept(raw, text.prefix.shape(raw), pool.room(self.stop))
            raws, shaped = zip(*(self.laws[text.tokens] for text in pool.live), strict=True)
            yield from pool.go_on(raws, shaped, {}, self.stop)
        if not pool.ended:
            return None
        best = pool.ended[0]
        # a single beam writes the same from any beginning on its way; several may not
        sizes = range(len(start.tokens), len(best.tokens)) if self.width == 1 else (len(start.tokens),)
        self.ends.update((best.tokens[:size], best) for size in sizes)
        return best

    def kids(self, text: Text, count: int) -> list[SearchEdge]:
        """The best tokens after a text, with their shares."""
        _, law = self.laws[text.tokens]
        best = leading([worth_of(law, 0.0)], count)
        total = sum(math.exp(one.value) for one in best)
        return [SearchEdge(one.token, math.exp(one.value) / total) for one in best]

    def then(self, text: Text, token: int) -> Text:
        """A text with one more token."""
        return text.then(token, *self.laws[text.tokens], self.stop)

    def _kept(self, raw: Law, law: Law, beams: int) -> tuple[Law, Law]:
        """What can be asked of a law later, before and after warps: its best tokens, unless somebody looks at all."""
        if self.stop.told == math.inf or law.is_empty():
            return raw, law
        listed = int(self.stop.told)
        best = among_best(law, max(self.most, beams, listed))
        tokens = (best | among_best(raw, listed) if listed > 0 else best).nonzero().flatten()
        return LeadingLaw(raw, tokens), LeadingLaw(law, tokens)
