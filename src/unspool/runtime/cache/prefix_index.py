"""Which computed text begins like a new one: an index of beginnings, so that finding one takes no search."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from .sequence import CachedSequence


class PrefixIndex:
    """For every beginning of a noted text, the text that was last noted to begin so.

    Texts are held weakly, and only what is still computed of them is given out.

    Cost: one entry per token of a noted text, one look-up per token of a new one.
    """

    def __init__(self) -> None:
        self._texts: dict[int, weakref.ref[CachedSequence]] = {}
        self._swept = 1024  # entries at which those of texts that are gone are swept out

    def note(self, leaf: CachedSequence) -> None:
        """Take note of a text as far as it is computed."""
        key, here, texts = 0, weakref.ref(leaf), self._texts
        for token in leaf.tokens[: len(leaf.slots)]:
            key = hash((key, token))
            texts[key] = here
        if len(texts) > self._swept:
            self._texts = {key: text for key, text in texts.items() if text() is not None}
            self._swept = max(1024, 2 * len(self._texts))

    def longest(self, tokens: Sequence[int], most: int) -> list[int]:
        """The slots of the longest beginning of `tokens`, of at most `most`, that some text has computed."""
        key, found, length = 0, None, 0
        for end, token in enumerate(tokens[:most], 1):
            key = hash((key, token))
            noted = self._texts.get(key)
            leaf = None if noted is None else noted()
            if leaf is None or len(leaf.slots) < end:
                break
            found, length = leaf, end
        if found is None or found.tokens[:length] != list(tokens[:length]):  # different texts may have equal keys
            return []
        return found.slots[:length]
