"""A store of texts in which any run of tokens is found by bisection: a suffix array."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ...core.errors import BadRequest

BORDER = -1  # stands after every text; no match and no continuation crosses it
DEEP = 32  # tokens by which places are sorted


class StoreMatch(NamedTuple):
    """The longest end of a text that a store knows, and what followed it there, evenly chosen from all places."""

    size: int = 0
    after: Sequence[Sequence[int]] = ()


class SuffixArray(NamedTuple):
    """Texts in a row, and their places sorted by the tokens that begin there. Never changed once made."""

    tokens: array[int]
    order: array[int]

    @staticmethod
    def of(texts: Iterable[Sequence[int]]) -> SuffixArray:
        """Sort by doubling: ranks of 2k tokens are pairs of ranks of k tokens."""
        tokens = array("i", (token for text in texts for token in (*text, BORDER)))
        if not tokens:
            return SuffixArray(tokens, array("i"))
        rank, k = torch.frombuffer(tokens, dtype=torch.int32).long() - BORDER, 1
        while True:
            ahead = torch.zeros_like(rank)
            ahead[:-k] = rank[k:] + 1
            both, order = (rank * (int(ahead.max()) + 1) + ahead).sort(stable=True)
            k *= 2
            if k >= DEEP:
                return SuffixArray(tokens, array("i", order.tolist()))
            rank = torch.empty_like(rank)
            rank[order] = torch.cat((both.new_zeros(1), (both[1:] != both[:-1]).long().cumsum(0)))

    def places(self, run: array[int]) -> range:
        """The part of `order` whose places begin with this run."""

        def here(at: int) -> array[int]:
            return self.tokens[at : at + len(run)]

        low = bisect_left(self.order, run, key=here)
        return range(low, bisect_right(self.order, run, low, key=here))

    def find(self, tail: Sequence[int], least: int, depth: int, most: int) -> StoreMatch:
        """What followed the longest end of `tail` that is here, of `least` tokens or more, at up to `most` places."""
        size, found = least - 1, range(0)
        low, high = least, min(len(tail), DEEP)
        while low <= high:  # an end that is not here has no longer one that is
            middle = (low + high + 1) // 2
            places = self.places(array("i", tail[-middle:]))
            if places:
                size, found, low = middle, places, middle + 1
            else:
                high = middle - 1
        step = max(1, -(-len(found) // most))
        starts = (self.order[i] + size for i in found[::step])
        runs = (self.tokens[start : start + depth] for start in starts)
        after = [run[: run.index(BORDER)] if BORDER in run else run for run in runs]
        return StoreMatch(size, after) if found else StoreMatch()


class Store:
    """Texts to retrieve continuations from: at most `most` tokens, the oldest texts out; to be shared between threads.

    Reading takes no lock: adding texts makes a new index and puts it in the old one's place.

    Cost: 8 bytes per token, and about 4 for the texts themselves; adding sorts all of it once.
    """

    def __init__(self, texts: Iterable[Sequence[int]] = (), most: int = 1 << 22) -> None:
        if most < 1:
            raise BadRequest(f"Store(most={most}) cannot be used; expected room for at least 1 token")
        self.most = most
        self._texts: deque[array[int]] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self.index = SuffixArray.of(())
        self.add(texts)

    def __len__(self) -> int:
        return self._size

    def add(self, texts: Iterable[Sequence[int]]) -> None:
        """Take in more texts; of one that is longer than the store, the end."""
        new = [array("i", text[-self.most :]) for text in texts if text]
        with self._lock:
            self._texts.extend(new)
            self._size += sum(map(len, new))
            while self._size > self.most:
                self._size -= len(self._texts.popleft())
            self.index = SuffixArray.of(self._texts)

    def save(self, path: str | Path) -> None:
        """Write the texts and their order to a file."""
        index = self.index
        parts = {name: torch.tensor(part, dtype=torch.int32) for name, part in index._asdict().items()}
        torch.save({**parts, "most": self.most}, path)

    @staticmethod
    def load(path: str | Path) -> Store:
        """Read a store that was saved."""
        try:
            parts = torch.load(path, weights_only=True)
            tokens, order, most = (parts[name] for name in ("tokens", "order", "most"))
            store = Store(most=most)
            index = SuffixArray(array("i", tokens.tolist()), array("i", order.tolist()))
        except Exception as error:
            raise BadRequest(
                f"{path} cannot be read as a store ({error}); expected a file made by Store.save"
            ) from error
        text = array("i")
        for token in index.tokens:
            if token == BORDER:
                store._texts.append(text)
                text = array("i")
            else:
                text.append(token)
        store.index, store._size = index, len(index.tokens) - len(store._texts)
        return store
