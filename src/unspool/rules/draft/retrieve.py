"""Retrieval from a store of texts: draft the continuations that followed there most often, as a tree.

Any run of tokens is found in the store by bisection: it is a suffix array.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from ...core.chance import Chance
from ...core.claim import SEED, Method, claims
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.saved_tensors import read_tensors
from ...core.tree import ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing
from ...loops.speculate import Speculate

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
        self.most, self.stamp = most, ""
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

    @property
    def texts(self) -> list[tuple[int, ...]]:
        """The texts that it holds, oldest first."""
        return [tuple(text) for text in self._texts]

    @property
    def largest(self) -> int:
        """The largest token; -1 if there is none."""
        return max(self.index.tokens, default=BORDER)

    def save(self, path: str | Path, stamp: str = "") -> None:
        """Write the texts and their order to a file; `stamp` tells whose tokens they are."""
        index = self.index
        parts = {name: torch.tensor(part, dtype=torch.int32) for name, part in index._asdict().items()}
        torch.save({**parts, "most": self.most, "vocabulary": stamp or self.stamp}, path)

    @staticmethod
    def load(path: str | Path) -> Store:
        """Read a store that was saved."""
        try:
            parts = read_tensors(path)
            tokens, order, most = (parts[name] for name in ("tokens", "order", "most"))
            store = Store(most=most)
            store.stamp = str(parts.get("vocabulary", ""))
            index = SuffixArray(array("i", tokens.tolist()), array("i", order.tolist()))
            if len(index.order) != len(index.tokens) or min(index.tokens, default=BORDER) < BORDER:
                raise ValueError("it is damaged")
        except Exception as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise BadRequest(
                f"{path} cannot be read as a store ({why}); expected a file made by `unspool store` or by Store.save"
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


def _trial() -> Method:
    return Speculate(Retrieve(Store([(0, 1, 0, 0, 1, 1, 0)]), Store([(1, 0, 1)]), least=1, depth=2), budget=3)


@claims(SEED, trials=lambda _: [_trial()], paper="2311.08252", systems=("REST", "CodeSwift (two stores)"))
@dataclass(frozen=True)
class Retrieve(Memoryless):
    """Find the longest end of the text, `span` to `least` tokens, in a store, and draft what followed most often.

    worth(path) = share of the places where the path followed; the budget goes to the worthiest paths, so parents are
    always drafted with their children. A `project` store, of the code at hand say, counts `favour` times as much, and
    after a `quiet` token, a line break say, nothing is asked: both are CodeSwift's (2502.17139) as its abstract lets
    one guess. Its cache of verified runs is not here; join with `suffixtree` for that.

    Claim: SEED under sample matching. Cost: a few bisections and up to `places` continuations of `depth` tokens per
    store.
    """

    store: Store
    project: Store | None = None
    favour: float = 2.0
    span: int = 16
    least: int = 2
    depth: int = 10
    places: int = 128
    quiet: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not (1 <= self.least <= self.span <= DEEP and min(self.depth, self.places) >= 1 and self.favour > 0):
            raise BadRequest(
                f"retrieve with span={self.span}, least={self.least}, depth={self.depth}, places={self.places}, "
                f"favour={self.favour} cannot be used; expected 1 ≤ least ≤ span ≤ {DEEP} and the others positive"
            )

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        worth = self.worth(prefix.text[-self.span :]) if prefix.text[-1] not in self.quiet else {}
        paths = sorted(worth, key=lambda path: (-worth[path], len(path)))[:budget]
        number = {(): ROOT} | {path: i for i, path in enumerate(paths)}
        drawn = tuple(chosen(path[-1]) for path in paths)
        return Tree(drawn, tuple(number[path[:-1]] for path in paths))

    def worth(self, tail: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        """How often each path followed, as a share of the places that were found."""
        worth: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for store, weight in ((self.store, 1.0), (self.project, self.favour)):
            if store is None:
                continue
            after = store.index.find(tail, self.least, self.depth, self.places).after
            for path in map(tuple, after):
                for n in range(1, len(path) + 1):
                    worth[path[:n]] += weight / len(after)
        return worth
