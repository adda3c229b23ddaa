"""Drafters made of drafters: whatever the parts can do, the whole can."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from ...core.asks import Scores, Tops
from ...core.chance import Chance
from ...core.tree import NOTHING, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Memory, MemoryOfParts, Proposing, Source, begun


class CompositeDraft(Draft):
    """A drafter that contains others and drafts with them."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Draft, ...]:
        """The drafters that it contains."""

    @property
    def reuses_noise(self) -> bool:
        return any(part.reuses_noise for part in self.parts)

    @property
    def warm(self) -> int:
        return sum(part.warm for part in self.parts)

    def memory(self, most: int) -> Memory | None:
        found = [part.memory(most) for part in self.parts]
        return MemoryOfParts(*found) if any(part is not None for part in found) else None

    def sharing(self, memory: MemoryOfParts) -> Draft:
        pairs = zip(self.parts, memory.parts, strict=True)
        return self.holding(tuple(part if own is None else part.sharing(own) for part, own in pairs))

    @abstractmethod
    def holding(self, parts: tuple[Draft, ...]) -> Draft:
        """The same drafter with these in place of its parts."""

    def sources(self, prefix: Prefix) -> tuple[Source, ...]:
        """A fresh source of each."""
        return tuple(begun(part, prefix) for part in self.parts)


class CompositeSource(Source):
    """The sources of one request as one: it wants, rests, listens and learns as they do.

    A subclass says how their trees become one. Where it drafts on its own account too, it says 0 for `rest`.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = tuple(sources)

    @property
    def want(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for source in self.sources for name in source.want))

    @property
    def ahead(self) -> int:
        """The most that any of them would have a model draft for itself.

        It counts only while the whole rests, and so while they all do: then nobody else drafts, and what a model drafts
        for itself changes no text.
        """
        return max((source.ahead for source in self.sources), default=0)

    @property
    def listens(self) -> bool:
        return any(source.listens for source in self.sources)

    def rest(self, prefix: Prefix) -> int:
        """As long as all of them rest: until the first wakes up."""
        return min((source.rest(prefix) for source in self.sources), default=0)

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        for source in self.sources:
            source.learn(prefix, tree, scores)

    def told(self, text: tuple[int, ...], tops: Tops) -> None:
        for source in self.sources:
            source.told(text, tops)


def proposed(source: Source, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
    """The tree of one source among several; nothing from one that rests, which is not even asked."""
    if source.rest(prefix):
        return NOTHING
    return (yield from source.propose(prefix, budget, chance))
