"""A drafter that somebody watches: what it proposes is noted, and otherwise nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...core.chance import Chance
from ...core.tree import Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source, check_drafter
from .composite import CompositeDraft, CompositeSource


@dataclass(frozen=True)
class Watched(CompositeDraft):
    """`draft`, with every tree it proposes handed to `note(prefix, tree)`."""

    draft: Draft
    note: Callable[[Prefix, Tree], None]

    def __post_init__(self) -> None:
        check_drafter("watched:draft", self.draft)

    @property
    def parts(self) -> tuple[Draft, ...]:
        return (self.draft,)

    def begin(self, prefix: Prefix) -> Source:
        return _Watching(self.sources(prefix), self.note)


class _Watching(CompositeSource):
    def __init__(self, sources: tuple[Source, ...], note: Callable[[Prefix, Tree], None]) -> None:
        super().__init__(sources)
        self.note = note

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        (source,) = self.sources
        tree = yield from source.propose(prefix, budget, chance)
        self.note(prefix, tree)
        return tree
