"""What a session remembers of one text: its tokens, the slots of those already computed, and drafts below its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ...core.law import Law


@dataclass
class DraftNode:
    """A drafted token whose keys, values and law have been computed."""

    token: int
    slot: int
    place: int  # its position in the text
    order: int  # its number among all drafts below the leaf, which is also the order of their keys
    above: CachedSequence | DraftNode
    law: Law
    hidden: Mapping[int, Tensor]
    kids: dict[int, DraftNode] = field(default_factory=dict)


@dataclass(eq=False)
class CachedSequence:
    """A kept text. The first `len(slots)` of its tokens are computed; the rest is owed to the next forward."""

    tokens: list[int]
    slots: list[int] = field(default_factory=list)
    law: Law | None = None  # after the last token, when nothing is owed
    hidden: Mapping[int, Tensor] = field(default_factory=dict)
    kids: dict[int, DraftNode] = field(default_factory=dict)
    drafts: list[DraftNode] = field(default_factory=list)  # every node below, in the order of their keys

    @property
    def owed(self) -> list[int]:
        """Tokens that no forward has seen yet."""
        return self.tokens[len(self.slots) :]

    def descend(self, tokens: tuple[int, ...]) -> Iterator[DraftNode]:
        """The computed nodes along these tokens, as far as there are any."""
        kids = self.kids
        for token in tokens:
            if token not in kids:
                return
            yield kids[token]
            kids = kids[token].kids
