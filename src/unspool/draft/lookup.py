"""Prompt lookup: what followed the last time these tokens stood here."""

from __future__ import annotations

from dataclasses import dataclass

from ..asks import Scores
from ..chance import Chance
from ..claim import SEED, Method, claims
from ..law import Drawn, Law
from ..tree import NOTHING, Tree
from ..warp.warp import Prefix
from .draft import Proposing, Source


def build(ngram: int = 3, depth: int = 10) -> Method:
    """Prompt lookup under the walk."""
    from ..decode.speculate import Speculate

    return Speculate(Lookup(ngram, depth), budget=depth)


@claims(
    SEED,
    trials=lambda _: [build(ngram=1, depth=2), build(ngram=2, depth=3)],
    build=build,
    paper="2304.04487",
    systems=("Prompt lookup decoding", "LLMA"),
)
@dataclass(frozen=True)
class Lookup:
    """Copy up to `depth` tokens from the latest earlier place where the longest possible n-gram (≤ `ngram`) stood.

    The tokens were chosen, not drawn, so their laws are point masses.

    Claim: SEED under the walk. Cost: no model; a backward scan of the text per round.
    """

    ngram: int = 3
    depth: int = 10

    def begin(self, prefix: Prefix) -> Source:
        """Itself: the text is all the memory it needs."""
        return self

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        """The continuation of the latest match, as a chain."""
        yield from ()
        copied = self._copied(prefix.text, min(self.depth, budget))
        return Tree.chain([Drawn(x, Law.point(x)) for x in copied]) if copied else NOTHING

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Nothing to learn: the next scan sees the new text."""

    def _copied(self, text: tuple[int, ...], depth: int) -> tuple[int, ...]:
        for n in range(min(self.ngram, len(text) - 1), 0, -1):
            key, last = text[-n:], text[-1]
            for start in range(len(text) - n - 1, -1, -1):
                if text[start + n - 1] == last and text[start : start + n] == key:
                    return text[start + n : start + n + depth]
        return ()
