"""Suffixes with counts: draft the likeliest continuations of every suffix that stood before, as a tree."""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...core.asks import Scores
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.law import Drawn, chosen
from ...core.tree import NOTHING, ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Memory, Proposing, Source
from ...loops.speculate import Speculate
from .automaton import START, Automaton

CONTEXTS = 8  # suffixes whose continuations are compared; shorter ones say less about what is next
REACH = 32  # tokens of the text's end that are looked up in a shared memory


class ScoredTree(NamedTuple):
    """A drafted tree, and how many of its tokens are expected to stand: the sum of its path probabilities."""

    tree: Tree = NOTHING
    score: float = 0.0


@claims(
    SEED,
    trials=lambda _: [Speculate(SuffixTree(), budget=2), Speculate(SuffixTree(3.0, 0.0), budget=3)],
    paper="2411.04975",
    systems=("SuffixDecoding",),
)
@dataclass(frozen=True)
class SuffixTree(Draft):
    """Best first by how often each continuation followed: of all suffixes, the tree with the largest expected gain.

    Below a suffix s of m tokens: p(x | s) = n(s·x) / Σ_y n(s·y); the ⌊pace·m⌋ nodes of largest path probability,
    none under `least`; score = Σ p(path). The suffix with the best score wins, in this text or in a shared memory. The
    counts are those of the paper's suffix tree without its bound on depth, kept in an automaton; its pace is 1.

    Claim: SEED under sample matching. Cost: amortised O(1) and about 0.5 kB per token; a heap of `budget` nodes per
    suffix.
    """

    pace: float = 4.0
    least: float = 0.1
    shared: SuffixTreeMemory | None = None

    def __post_init__(self) -> None:
        if not (self.pace > 0 and 0 <= self.least <= 1):
            raise BadRequest(
                f"suffixtree:pace={self.pace},least={self.least} cannot be used; expected pace > 0 and 0 ≤ least ≤ 1"
            )

    @property
    def warm(self) -> int:
        return 0 if self.shared is None else len(self.shared)

    def memory(self, most: int) -> SuffixTreeMemory:
        return SuffixTreeMemory(max(2, most))

    def sharing(self, memory: SuffixTreeMemory) -> Draft:
        return replace(self, shared=memory)

    def begin(self, prefix: Prefix) -> Source:
        return Counted(self, len(prefix))

    def best(self, counts: Automaton, state: int, size: int, budget: int) -> ScoredTree:
        """The best tree below any of the suffixes of these `size` tokens, which lead to `state`."""
        best = ScoredTree()
        for _, suffix in zip(range(CONTEXTS), counts.suffixes(state), strict=False):
            size = min(size, counts.length[suffix])
            most = min(budget, int(self.pace * size + 1e-6))
            if most <= best.score:  # no path is more probable than 1
                break
            guess = self.below(counts, suffix, most)
            if guess.score > best.score:
                best = guess
        return best

    def below(self, counts: Automaton, state: int, most: int) -> ScoredTree:
        """The `most` likeliest nodes below a state."""
        drawn: list[Drawn] = []
        parent: list[int] = []
        score, order = 0.0, 0
        heap: list[tuple[float, int, int, int, int]] = []  # −p(path), tie, token, state, parent
        node, chance, here = ROOT, 1.0, state
        while len(drawn) < most:
            kids = counts.edges[here]
            if kids:
                total = sum(map(counts.count.__getitem__, kids.values()))
                for token, kid in kids.items():
                    p = chance * counts.count[kid] / total
                    if p >= self.least:
                        heapq.heappush(heap, (-p, order, token, kid, node))
                        order -= 1  # of equal ones the youngest first
            if not heap:
                break
            minus, _, token, here, above = heapq.heappop(heap)
            node, chance = len(drawn), -minus
            drawn.append(chosen(token))
            parent.append(above)
            score += chance
        return ScoredTree(Tree(tuple(drawn), tuple(parent)), score)


class Counted(Source):
    """One request's text with its counts."""

    def __init__(self, rule: SuffixTree, written: int) -> None:
        self.rule, self.counts = rule, Automaton()
        self.state, self.seen = START, 0
        self.written, self.page = written, Page(self.counts, START)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        self.read(prefix.text)
        # the link of a whole text is its longest suffix that also stands elsewhere in it
        state = max(self.counts.link[self.state], START)
        guess = self.rule.best(self.counts, state, self.counts.length[state], budget)
        if self.rule.shared is not None:
            other = self.rule.shared.guess(self.rule, prefix.text[-REACH:], budget)
            guess = max(guess, other, key=lambda g: g.score)
        return guess.tree

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Tell the shared memory what was written; what ends a text is never learnt, as no round follows."""
        if self.rule.shared is not None:
            self.page = self.rule.shared.write(self.page, prefix.text[self.written :])
            self.written = len(prefix)

    def read(self, text: tuple[int, ...]) -> None:
        """Count the tokens that are new."""
        for end in range(self.seen, len(text)):
            self.state = self.counts.add(self.state, text[end], end + 1)
        self.seen = len(text)


class Page(NamedTuple):
    """Where a request writes in a shared memory."""

    counts: Automaton
    state: int


class SuffixTreeMemory(Memory):
    """Counts of what requests have written, for others to draft from: at most `most` tokens, the oldest half goes out.

    Whoever shares one shares what was written, and its timing: give one to requests that may know of each other.
    """

    def __init__(self, most: int = 1 << 20) -> None:
        if most < 2:
            raise BadRequest(f"Memory(most={most}) cannot be used; expected room for at least 2 tokens")
        self.most, self._written = most, 0
        self._young, self._old = Automaton(), Automaton()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._young) + len(self._old) - 2  # both have a state for no text

    def state(self) -> dict[str, Any]:
        with self._lock:
            return {"written": self._written, "young": self._young.state(), "old": self._old.state()}

    def restore(self, state: dict[str, Any]) -> None:
        young, old = (Automaton.of(state[name], self.most) for name in ("young", "old"))
        with self._lock:
            self._written, self._young, self._old = int(state["written"]), young, old

    def write(self, page: Page, tokens: tuple[int, ...]) -> Page:
        """Go on writing where this request left off."""
        with self._lock:
            for token in tokens:
                if self._written >= self.most // 2:
                    self._old, self._young, self._written = self._young, Automaton(), 0
                state = page.state if page.counts is self._young else START  # an old page is closed
                page = Page(self._young, self._young.add(state, token, 0))
                self._written += 1
            return page

    def guess(self, rule: SuffixTree, tail: tuple[int, ...], budget: int) -> ScoredTree:
        """The best tree below the longest suffix of `tail` that was written, in either half."""
        with self._lock:
            found = [rule.best(half, *half.match(tail), budget) for half in (self._young, self._old)]
        return max(found, key=lambda g: g.score)
