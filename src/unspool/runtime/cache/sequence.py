"""What a session remembers of one text: its tokens, the slots of those already computed, and drafts below its end.

An index of beginnings finds the computed text that begins like a new one, without a search.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
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
    owner: str = ""  # whose text it is: others do not find it

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


class PrefixIndex:
    """For every beginning of a noted text, the text of the same owner that was last noted to begin so.

    Texts are held weakly, and only what is still computed of them is given out.

    Cost: one entry per token of a noted text, one look-up per token of a new one.
    """

    def __init__(self) -> None:
        self._texts: dict[int, weakref.ref[CachedSequence]] = {}
        self._swept = 1024  # entries at which those of texts that are gone are swept out

    def note(self, leaf: CachedSequence) -> None:
        """Take note of a text as far as it is computed."""
        key, here, texts = _start(leaf.owner), weakref.ref(leaf), self._texts
        for token in leaf.tokens[: len(leaf.slots)]:
            key = hash((key, token))
            texts[key] = here
        if len(texts) > self._swept:
            self._texts = {key: text for key, text in texts.items() if text() is not None}
            self._swept = max(1024, 2 * len(self._texts))

    def longest(self, tokens: Sequence[int], most: int, owner: str = "") -> list[int]:
        """The slots of the longest beginning of `tokens`, of at most `most`, that some text of `owner` has computed."""
        key, found, length = _start(owner), None, 0
        for end, token in enumerate(tokens[:most], 1):
            key = hash((key, token))
            noted = self._texts.get(key)
            leaf = None if noted is None else noted()
            if leaf is None or len(leaf.slots) < end:
                break
            found, length = leaf, end
        if found is None or found.owner != owner or found.tokens[:length] != list(tokens[:length]):
            return []  # different texts may have equal keys
        return found.slots[:length]


def _start(owner: str) -> int:
    return hash(owner) if owner else 0
