"""Prompt lookup: what followed the last time these tokens stood here."""

from __future__ import annotations

from dataclasses import dataclass

from ..asks import Scores
from ..chance import Chance
from ..claim import SEED, Method, claims
from ..errors import BadRequest
from ..law import Drawn, Law
from ..tree import NOTHING, Tree
from ..warp.warp import Prefix
from .draft import Proposing, Source


def build(ngram: int = 3, least: int = 2, depth: int = 5) -> Method:
    """Prompt lookup under the walk."""
    from ..decode.speculate import Speculate

    return Speculate(Lookup(ngram, least, depth), budget=depth)


@claims(
    SEED,
    trials=lambda _: [build(1, 1, 2), build(2, 1, 3), build(2, 2, 3)],
    build=build,
    paper="2304.04487",
    systems=("Prompt lookup decoding", "LLMA"),
)
@dataclass(frozen=True)
class Lookup:
    """Copy up to `depth` tokens from the latest earlier place where the last `ngram` tokens, or ≥ `least`, stood.

    The tokens were chosen, not drawn, so their laws are point masses.

    Claim: SEED under the walk. Cost: no model; a backward scan of the text per round.
    """

    ngram: int = 3
    least: int = 2
    depth: int = 5

    def __post_init__(self) -> None:
        if not (1 <= self.least <= self.ngram and self.depth >= 1):
            raise BadRequest(
                f"lookup:ngram={self.ngram},least={self.least},depth={self.depth} cannot be used; "
                "expected 1 ≤ least ≤ ngram and depth ≥ 1"
            )

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
        for n in range(min(self.ngram, len(text) - 1), self.least - 1, -1):
            key, last = text[-n:], text[-1]
            for start in range(len(text) - n - 1, -1, -1):
                if text[start + n - 1] == last and text[start : start + n] == key:
                    return text[start + n : start + n + depth]
        return ()
