"""A drafter that somebody watches: what it proposes is noted, and otherwise nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..asks import Scores
from ..chance import Chance
from ..tree import Tree
from ..warp.warp import Prefix
from .draft import Draft, Proposing, Source, resting, wanted


@dataclass(frozen=True)
class Watched:
    """`draft`, with every tree it proposes handed to `note(prefix, tree)`."""

    draft: Draft
    note: Callable[[Prefix, Tree], None]

    def begin(self, prefix: Prefix) -> Source:
        """A watched source of that drafter."""
        return _Watching(self.draft.begin(prefix), self.note)


@dataclass(frozen=True)
class _Watching:
    source: Source
    note: Callable[[Prefix, Tree], None]

    @property
    def want(self) -> tuple[str, ...]:
        return wanted(self.source)

    def rest(self, prefix: Prefix) -> int:
        return resting(self.source, prefix)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree = yield from self.source.propose(prefix, budget, chance)
        self.note(prefix, tree)
        return tree

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        self.source.learn(prefix, tree, scores)
