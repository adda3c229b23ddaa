"""The longest suffix that stood before, found by an automaton: copy what followed it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...core.chance import Chance
from ...core.claim import SEED, Method, claims
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.tree import Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate
from .automaton import START, Automaton
from .guide import Guide, Kids

BORDER = -1  # stands between the documents of a corpus; no copy crosses it


class Corpus:
    """Texts to copy from besides the request's own, read once into an automaton and never changed, so safe to share.

    Cost: about 0.5 kB per token. `retrieve` has a store for large corpora.
    """

    def __init__(self, documents: Iterable[Sequence[int]]) -> None:
        self.text: list[int] = []
        self.automaton = Automaton()
        state = START
        for document in documents:
            for token in (*document, BORDER):
                self.text.append(token)
                state = self.automaton.add(state, token, len(self.text))


@claims(
    SEED,
    trials=lambda _: [Speculate(Suffix(2), budget=2), _with_corpus()],
    paper="2411.10666",
    systems=("SAM-Decoding",),
)
@dataclass(frozen=True)
class Suffix(Draft):
    """Copy what followed the longest suffix of the text that stood before, in the text itself or in a corpus.

    A match of l ≥ `least` tokens drafts min(`depth`, 1 + `pace`·l) tokens, from its latest earlier place. The corpus
    wins if its match is longer by more than `bias`. A copy that reaches the end of the text goes on into what it has
    copied, so a loop is drafted whole; the paper takes the first place, and climbs to shorter matches there.

    Claim: SEED under sample matching. Cost: amortised O(1) and about 0.5 kB per token.
    """

    depth: int = 16
    least: int = 1
    pace: int = 4
    corpus: Corpus | None = None
    bias: int = 0

    def __post_init__(self) -> None:
        if min(self.depth, self.least) < 1 or min(self.pace, self.bias) < 0:
            raise BadRequest(
                f"suffix:depth={self.depth},least={self.least},pace={self.pace},bias={self.bias} cannot be used; "
                "expected depth and least from 1 on, pace and bias from 0 on"
            )

    def begin(self, prefix: Prefix) -> Source:
        return SuffixSource(self)


class SuffixSource(Source, Guide):
    """One request's text in an automaton, and where its end stands in the corpus."""

    voices = (1.0,)

    def __init__(self, rule: Suffix) -> None:
        self.rule, self.automaton = rule, Automaton()
        self.text: list[int] = []
        self.state = START
        self.cursor = START, 0
        self.size, self.copy = 0, list[int]()  # tokens of the last match, and what followed it

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        self.read(prefix.text)
        copied = self.copied(budget)
        return Tree.chain([chosen(x) for x in copied], [_belief(self.size + i) for i in range(len(copied))])

    def start(self, prefix: Prefix) -> int:
        self.read(prefix.text)
        self.copy = self.copied(self.rule.depth)
        return 0

    def below(self, place: int) -> tuple[int, Kids]:
        return 0, [(self.copy[place], _belief(self.size + place))] if place < len(self.copy) else []

    def then(self, place: int, token: int) -> int | None:
        return place + 1 if place < len(self.copy) and self.copy[place] == token else None

    def read(self, text: tuple[int, ...]) -> None:
        """Read the tokens that are new."""
        corpus = self.rule.corpus
        for token in text[len(self.text) :]:
            self.text.append(token)
            self.state = self.automaton.add(self.state, token, len(self.text))
            if corpus is not None:
                self.cursor = corpus.automaton.step(*self.cursor, token)

    def copied(self, budget: int) -> list[int]:
        """What followed the longest match."""
        own, rule = self.automaton, self.rule
        match = own.link[self.state]  # the link of a whole text is its longest suffix that also stands elsewhere in it
        size, (state, far) = own.length[match] if match > START else 0, self.cursor
        if rule.corpus is not None and far - rule.bias > size and far >= rule.least:
            start, self.size = rule.corpus.automaton.latest[state], far
            copy = rule.corpus.text[start : start + self._most(far, budget)]
            return copy[: copy.index(BORDER)] if BORDER in copy else copy
        if size < rule.least:
            return []
        self.size = size
        start, most = own.earlier[match], self._most(size, budget)
        period = self.text[start : start + max(1, most)]  # all that follows, if that is less than what is wanted
        return (period * (most // len(period) + 1))[:most]

    def _most(self, size: int, budget: int) -> int:
        return min(self.rule.depth, 1 + self.rule.pace * size, budget)


def _belief(size: int) -> float:
    """How likely a copy is to go on after a match of so many tokens, before the text has told."""
    return size / (size + 3)


def _with_corpus() -> Method:
    return Speculate(Suffix(depth=2, corpus=Corpus([(0, 1, 1), (1, 0)])), budget=2)
