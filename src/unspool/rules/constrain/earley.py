"""Earley's parser over texts with gaps: what may follow, whether a text is whole, how a gap is filled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, TypeAlias

from ...core.errors import BadRequest

WORK = 100_000  # items of one question; beyond it is not told
FEW = 20_000  # of the question that goes from hole to hole

Symbol: TypeAlias = str | int  # a rule's name, or a terminal's number
Rule: TypeAlias = tuple[str, tuple[Symbol, ...]]


class Unsettled(BadRequest):
    """A question that would take too long."""


class Crossing(NamedTuple):
    """A gap that a terminal touches: the scanner's state before it, and behind it; None if the terminal ends inside."""

    gap: int
    before: int
    behind: int | None


class Item(NamedTuple):
    """How far a rule is read, and the column where it began."""

    rule: int
    dot: int
    origin: Column


class Scanned(NamedTuple):
    """An item came of another by a terminal."""

    column: Column
    item: Item
    terminal: int
    crossings: tuple[Crossing, ...]


class Completed(NamedTuple):
    """An item came of another by a rule that is whole."""

    column: Column
    item: Item
    inner_column: Column
    inner: Item


Why: TypeAlias = Scanned | Completed | None
Seed: TypeAlias = tuple[int, Item, Why]


@dataclass(frozen=True, eq=False)
class Syntax:
    """Rules over terminals; the first symbol is `start`. Rules that derive nothing finite must be left out."""

    start: str
    rules: tuple[Rule, ...]
    terminals: int

    @cached_property
    def of(self) -> dict[str, list[int]]:
        """The rules of each name."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, (head, _) in enumerate(self.rules):
            found[head].append(number)
        return found

    def fruitful(self) -> Syntax:
        """Without what derives no finite text and what the start never leads to."""
        fine: set[Symbol] = set(range(self.terminals))
        kept: list[Rule] = []
        while True:
            grown = [rule for rule in self.rules if all(symbol in fine for symbol in rule[1])]
            if len(grown) == len(kept):
                break
            kept = grown
            fine |= {head for head, _ in kept}
        seen, work = {self.start}, [self.start]
        while work:
            name = work.pop()
            for head, body in kept:
                new = {symbol for symbol in body if isinstance(symbol, str)} - seen if head == name else ()
                seen.update(new)
                work.extend(new)
        return Syntax(self.start, tuple(rule for rule in kept if rule[0] in seen), self.terminals)

    def pairs(self) -> set[tuple[int, int]]:
        """The terminals that may stand side by side."""
        empty: set[Symbol] = set()
        first: dict[Symbol, set[int]] = {terminal: {terminal} for terminal in range(self.terminals)}
        last: dict[Symbol, set[int]] = {terminal: {terminal} for terminal in range(self.terminals)}
        size = -1
        while size != (size := len(empty) + sum(map(len, first.values())) + sum(map(len, last.values()))):
            for head, body in self.rules:
                if all(symbol in empty for symbol in body):
                    empty.add(head)
                for edge, symbols in ((first, body), (last, body[::-1])):
                    for symbol in symbols:
                        edge.setdefault(head, set()).update(edge.get(symbol, ()))
                        if symbol not in empty:
                            break
        found: set[tuple[int, int]] = set()
        for _, body in self.rules:
            for i, left in enumerate(body):
                for right in body[i + 1 :]:
                    found |= {(a, b) for a in last.get(left, ()) for b in first.get(right, ())}
                    if right not in empty:
                        break
        return found


class Column:
    """The items that stand at one place of a text, each with its lightest derivation.

    The weight of an item is how many terminals of it stand inside gaps: what is filled in is as short as can be. In the
    column of a gap any terminal may be read and leads to the column itself (2508.10111: a gap has any length).
    """

    __slots__ = ("complete", "finished", "syntax", "waiting", "wants", "weight", "why")

    def __init__(self, syntax: Syntax, seeds: Iterable[Seed], left: list[int], gap: int | None = None) -> None:
        self.syntax = syntax
        self.why: dict[Item, Why] = {}
        self.weight: dict[Item, int] = {}
        self.waiting: dict[Symbol, list[Item]] = {}
        self.finished: dict[str, list[Item]] = {}  # of rules that derive nothing, or only what stands in the gap
        self.complete: Item | None = None  # the whole text
        ticket = count()
        heap: list[tuple[int, int, Item, Why]] = []

        def add(weight: int, item: Item, why: Why) -> None:
            if item not in self.why:
                heappush(heap, (weight, next(ticket), item, why))

        for seed in seeds:
            add(*seed)
        while heap:
            weight, _, item, why = heappop(heap)
            if item in self.why:
                continue
            left[0] -= 1
            if left[0] < 0:
                raise Unsettled("the text takes this grammar too much work to parse; make one of them smaller")
            self.why[item], self.weight[item] = why, weight
            head, body = syntax.rules[item.rule]
            if item.dot == len(body):
                origin = item.origin
                if head == "" and self.complete is None:
                    self.complete = item
                if origin is self:
                    self.finished.setdefault(head, []).append(item)
                for outer in origin.waiting.get(head, ()):
                    add(weight + origin.weight[outer], _next(outer), Completed(origin, outer, self, item))
                continue
            symbol = body[item.dot]
            new = symbol not in self.waiting
            self.waiting.setdefault(symbol, []).append(item)
            if isinstance(symbol, int):
                if gap is not None:
                    add(weight + 1, _next(item), Scanned(self, item, symbol, (Crossing(gap, 0, None),)))
                continue
            if new:
                for rule in syntax.of.get(symbol, ()):
                    add(0, Item(rule, 0, self), None)
            for inner in self.finished.get(symbol, ()):
                add(weight + self.weight[inner], _next(item), Completed(self, item, self, inner))
        self.wants = frozenset(symbol for symbol in self.waiting if isinstance(symbol, int))

    @staticmethod
    def first(syntax: Syntax, left: list[int]) -> Column:
        """The column before a text."""
        number = next(i for i, (head, _) in enumerate(syntax.rules) if head == "")
        column = object.__new__(Column)
        column.__init__(syntax, [(0, Item(number, 0, column), None)], left)  # type: ignore[misc]
        return column

    def scanned(self, terminal: int, crossings: tuple[Crossing, ...] = (), more: int = 0) -> Iterator[Seed]:
        """What this terminal makes of the items here."""
        for item in self.waiting.get(terminal, ()):
            yield self.weight[item] + more, _next(item), Scanned(self, item, terminal, crossings)

    def terminals(self, item: Item) -> list[tuple[int, tuple[Crossing, ...]]]:
        """The terminals that an item was made of, left to right, each with the gaps that it touches."""
        found: list[tuple[int, tuple[Crossing, ...]]] = []
        work: list[tuple[Column, Item]] = [(self, item)]
        while work:  # from right to left
            column, at = work.pop()
            why = column.why[at]
            if isinstance(why, Scanned):
                found.append((why.terminal, why.crossings))
                work.append((why.column, why.item))
            elif isinstance(why, Completed):
                work += [(why.column, why.item), (why.inner_column, why.inner)]
        return found[::-1]


def _next(item: Item) -> Item:
    return Item(item.rule, item.dot + 1, item.origin)


def syntax_of(start: str, rules: Sequence[Rule], terminals: int) -> Syntax:
    """Rules with one more, nameless, that has the whole text."""
    return Syntax("", (("", (start,)), *rules), terminals).fruitful()
