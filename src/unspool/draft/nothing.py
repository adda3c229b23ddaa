"""No draft at all: speculation with the empty tree is plain decoding."""

from __future__ import annotations

from dataclasses import dataclass

from ..asks import Scores
from ..chance import Chance
from ..tree import NOTHING, Tree
from ..warp.warp import Prefix
from .draft import Proposing, Source


@dataclass(frozen=True)
class Nothing:
    """Proposes the empty tree."""

    def begin(self, prefix: Prefix) -> Source:
        """Itself: there is nothing to remember."""
        return self

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        """The empty tree."""
        yield from ()
        return NOTHING

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Nothing to learn."""
