"""Deferred capture: graphs are recorded when nobody waits, and until then a wider one serves.

A capture takes 30 ms, and seconds where its kernels are yet to be compiled. Rows that leave room in a wider graph cost
a part of a millisecond, so in a server that is the better way; the text is the same where results do not depend on the
batch, and only there it is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .footprint import FEW, FLOCK, PORTION, SHORTEST, WIDEST, step_up
from .graph_bucket import Bucket
from .packing import Kind, Size
from .warp_stage import BARE, Shaping

RENT = 64  # times that a wider graph serves before its own is captured although somebody waits
WARPED = Shaping(edits=True, truncates=True)
CHECKED = WARPED._replace(masks=True, ranks=True), WARPED._replace(ranks=True)  # of one go, turn by turn
USUAL = (BARE, WARPED, WARPED._replace(masks=True), WARPED._replace(reports=5), *CHECKED)
"""What most requests ask for; each includes what is less than it."""


class Wish(NamedTuple):
    """A graph that is to be captured."""

    size: Size
    shaping: Shaping


class DeferredCapture:
    """The graphs that were captured, and those that are still to be, the most wanted first."""

    def __init__(self, buckets: Mapping[Size, Bucket]) -> None:
        self._buckets = buckets
        self._wishes: Counter[Wish] = Counter()

    def __len__(self) -> int:
        return len(self._wishes)

    def wish(self, wish: Wish) -> None:
        """Have a graph captured later, unless it already is."""
        if not self._has(wish):
            self._wishes[wish] += 1

    def serving(self, wish: Wish) -> tuple[Bucket, Shaping] | None:
        """The graph of this size, or a captured one that can take its place; None if it must be captured now."""
        if self._has(wish):
            return self._buckets[wish.size], wish.shaping
        self._wishes[wish] += 1
        there = [
            (size, shaping)
            for size, bucket in self._buckets.items()
            if holds(size, wish.size)
            for shaping in bucket.shapings
            if includes(shaping, wish.shaping)
        ]
        if not there or self._wishes[wish] > RENT:
            return None
        size, shaping = min(there, key=lambda each: (each[0].rows * each[0].tokens, each[0].length, sum(each[1])))
        return self._buckets[size], shaping

    def next(self) -> Wish | None:
        """The graph to capture next, while no request waits."""
        while self._wishes:
            wish, _ = self._wishes.most_common(1)[0]
            del self._wishes[wish]
            if not self._has(wish):
                return wish
        return None

    def give_up(self) -> None:
        """Capture nothing more."""
        self._wishes.clear()

    def _has(self, wish: Wish) -> bool:
        return wish.size in self._buckets and wish.shaping in self._buckets[wish.size].shapings


def holds(there: Size, size: Size) -> bool:
    """Whether a step of a size can be run in the graph of another."""
    wide = there.tokens >= size.tokens if size.kind.pads else there.tokens == size.tokens
    alike = there.kind is size.kind and (there.depth, there.drawn) == (size.depth, size.drawn)
    return alike and wide and there.rows >= size.rows and there.length >= size.length


def includes(there: Shaping, shaping: Shaping) -> bool:
    """Whether a graph with these kernels does what another's would; masks take a graph of their own."""
    does = there.edits >= shaping.edits and there.truncates >= shaping.truncates and there.masks == shaping.masks
    does = does and there.ranks >= shaping.ranks
    return does and shaping.reports in (0, there.reports)


def speculative_ladder(rows: int, longest: int, widths: Callable[[int], Sequence[int]]) -> Iterator[Wish]:
    """The graphs of speculative steps that up to so many texts need, of every width that so many may have."""
    for length in dict.fromkeys((SHORTEST, longest)):
        for shaping in (BARE, WARPED):
            for n in _crowds(rows):
                yield from (Wish(Size(Kind.SPECULATE, n, width, length), shaping) for width in widths(n))


def ladder(rows: int, longest: int) -> Iterator[Wish]:
    """The graphs that a server of up to `rows` texts needs with usual settings: those for short texts first."""
    crowds = _crowds(rows)
    for length in dict.fromkeys((SHORTEST, longest)):
        for shaping in USUAL:
            yield from (Wish(Size(Kind.WRITE, crowd, 1, length), shaping) for crowd in crowds)
    for shaping in (BARE, WARPED, WARPED._replace(masks=True)):
        for crowd in (crowd for crowd in crowds if crowd <= FEW):
            yield from (Wish(Size(Kind.TREE, crowd, 1 << i, longest), shaping) for i in range(WIDEST.bit_length()))
    for crowd in crowds:
        chunks = (WIDEST << i for i in range((PORTION // WIDEST).bit_length()))
        yield from (Wish(Size(Kind.FILL, crowd, chunk, longest), BARE) for chunk in chunks if crowd * chunk <= FLOCK)


def _crowds(rows: int) -> list[int]:
    return [1 << i for i in range(step_up(rows, 1).bit_length())]
