"""A pool of phrases: what has followed a token, newest first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock


class NgramPool:
    """For each token the `each` newest phrases of up to `length` tokens that followed it, for the `most` newest tokens.

    Sources of several requests may share one: it is bounded, the longest unused give way, and calls may come from any
    thread.
    """

    def __init__(self, length: int, each: int, most: int = 65536) -> None:
        self.length, self.each, self.most = length, each, most
        self._phrases: OrderedDict[int, list[tuple[int, ...]]] = OrderedDict()
        self._lock = Lock()

    def add(self, token: int, phrase: Sequence[int]) -> None:
        """Take note that this phrase followed this token; one that it begins or repeats makes room for it."""
        new = tuple(phrase[: self.length])
        if not new:
            return
        with self._lock:
            old = self._phrases.pop(token, [])
            kept = [p for p in old if p != new[: len(p)]]
            self._phrases[token] = [new, *kept][: self.each]
            while len(self._phrases) > self.most:
                self._phrases.popitem(last=False)

    def read(self, text: Sequence[int], start: int = 0) -> None:
        """Take note of every whole phrase of a text that ends at `start` or later."""
        for i in range(max(0, start - self.length), len(text) - self.length):
            self.add(text[i], text[i + 1 : i + 1 + self.length])

    def after(self, token: int) -> list[tuple[int, ...]]:
        """The phrases that followed this token, newest first."""
        with self._lock:
            return list(self._phrases.get(token, ()))

    def __len__(self) -> int:
        return len(self._phrases)
