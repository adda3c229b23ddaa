"""Remembered laws: after the same tokens the target will say again what it said before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...core.asks import Scores, Tops
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.tree import Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate
from ..grow.best_first import best_first, planted
from .guide import Guide, Kids
from .recycle import Row, RowMemory

ORDER = 2  # tokens of context that a law is remembered by; the last one alone is the fallback
TRUST = (0.5, 0.8)  # what a law remembered by one token, or by two, is believed to be worth before the text has told

Context: TypeAlias = tuple[int, ...]


class BigramLaws(RowMemory[Context | int]):
    """The likeliest next tokens after two tokens, and after the last of them alone."""

    def after(self, context: Context) -> tuple[int, Row]:
        """The likeliest next tokens with their weight among them, best first, and how many tokens they are known by."""
        row = self._rows.get(context)
        if row is not None:
            return 2, row
        return 1, self._rows.get(context[-1], ())

    def put(self, contexts: Sequence[Context], rows: Sequence[Row]) -> None:
        """Take note of the likeliest next tokens after these contexts; the last of several stands."""
        self._note([*contexts, *(context[-1] for context in contexts)], [*rows, *rows])


@claims(
    SEED,
    name="bigram_recycling",
    trials=lambda _: [Speculate(BigramRecycling(), budget=2), Speculate(BigramRecycling(), budget=3)],
    paper="2408.08696",
    systems=("Token Recycling, best first by remembered probabilities",),
)
@dataclass(frozen=True)
class BigramRecycling(Draft):
    """The most probable paths under the laws that the target gave after the same tokens before.

    p̂(x | …ab) is what the target said of x when it last scored a token b after an a; where it never did, what it said
    when it last scored any b. As in token recycling (2408.08696) every scored node counts, rejected or not; the longer
    context, the probabilities and the tree grown by them instead of a template are ours.

    Claim: SEED under sample matching. Cost: one top-k over the scored nodes and one copy to the host per round.
    """

    width: int = 8
    shared: BigramLaws | None = None

    @property
    def warm(self) -> int:
        return 0 if self.shared is None else len(self.shared)

    def memory(self, most: int) -> BigramLaws:
        return BigramLaws(self.width, most)

    def sharing(self, memory: BigramLaws) -> Draft:
        return replace(self, shared=memory)

    def begin(self, prefix: Prefix) -> Source:
        return Recalled(BigramLaws(self.width) if self.shared is None else self.shared, prefix.text[-ORDER:])


class Recalled(Source, Guide):
    """The laws of one request, and the end of its text."""

    listens = True
    voices = (0.3, 0.6)  # and beside other sources, which know better what is copied (tests/data/rounds.json)

    def __init__(self, laws: BigramLaws, end: Context) -> None:
        self.laws, self.end = laws, end

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        twigs = best_first(self._trusted, budget, start=self.start(prefix), then=self.then)
        tree = planted(twigs)
        sure = tuple(twig.p if twig.parent < 0 else twig.p / twigs[twig.parent].p for twig in twigs)
        return Tree(tree.drawn, tree.parent, sure)

    def start(self, prefix: Prefix) -> Context:
        self.end = prefix.text[-ORDER:]  # a text may have gone on by itself since it was learnt from
        return self.end

    def below(self, place: Context) -> tuple[int, Kids]:
        size, row = self.laws.after(place)
        return size - 1, row

    def then(self, place: Context, token: int) -> Context:
        return place[-1], token

    def _trusted(self, place: Context) -> Iterator[tuple[int, float]]:
        size, row = self.laws.after(place)
        trust = TRUST[size - 1]
        return ((token, trust * p) for token, p in row)

    def told(self, text: tuple[int, ...], tops: Tops) -> None:
        known = sorted(tops.items())
        totals = [sum(p for _, p in best) for _, best in known]
        rows = [[(x, p / total) for x, p in best] for (_, best), total in zip(known, totals, strict=True)]
        self.laws.put([text[max(0, place - ORDER) : place] for place, _ in known], rows)

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        best = scores.best(self.laws.width)  # the one sync
        tokens = [token for token, _ in tree.drawn]
        above = [*tokens, self.end[-1]]  # the root is -1, so that the last one is above what has no parent
        self.laws.put([self.end, *zip([above[parent] for parent in tree.parent], tokens, strict=True)], best)
        self.end = prefix.text[-ORDER:]
