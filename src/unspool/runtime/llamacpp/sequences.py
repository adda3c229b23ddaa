"""Which cells of the cache each of llama.cpp's sequences runs through, and the pool that counts who uses a cell.

A cell is one computed token: its number is never given twice, so the cell at a place tells all that stands before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Protocol

from ...core.errors import OutOfRoom
from ..cache.kv_pool import KVPool


class CellPool(KVPool):
    """The slots of a cached model where llama.cpp keeps what is in them: numbers with a count of users each."""

    gathers = True  # so that nobody wants to move them

    def __init__(self, room: int) -> None:
        super().__init__(0)
        self.room = room
        self.users: dict[int, int] = {}
        self.freed = False  # whether nobody uses some cells any more that somebody used when this was last set so
        self._next = 0

    @property
    def in_use(self) -> int:
        return len(self.users)

    def take(self, count: int, after: int | None = None) -> list[int]:
        if count > self.room - len(self.users):
            raise OutOfRoom(self._full(count))
        taken = list(range(self._next, self._next + count))
        self._next += count
        self.users.update(dict.fromkeys(taken, 1))
        return taken

    def share(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.users[slot] += 1

    def drop(self, slots: Sequence[int]) -> None:
        users = self.users
        for slot in slots:
            if users[slot] == 1:
                del users[slot]
                self.freed = True
            else:
                users[slot] -= 1


class SequenceMemory(Protocol):
    """What holds the sequences."""

    def copy(self, source: int, target: int, size: int) -> None:
        """Let an empty sequence have the first `size` tokens of another."""

    def cut(self, sequence: int, size: int) -> bool:
        """Leave a sequence its first `size` tokens."""


class Sequences:
    """The cells of every sequence, by their places in its text.

    A sequence may be taken from its text when others need one; then cells that stand in no other are lost, and
    whoever goes on from them computes them again.
    """

    def __init__(self, memory: SequenceMemory, count: int) -> None:
        self._memory = memory
        self.cells: list[list[int]] = [[] for _ in range(count)]
        self._last = 0  # the one that was found last, which a text that goes on will look for again

    def sweep(self, users: Collection[int]) -> None:
        """Cut off what nobody uses any more: from its first unused cell on, nothing of a sequence is used."""
        for number, cells in enumerate(self.cells):
            if cells and cells[-1] not in users:
                self.cut(number, bisect_left(cells, True, key=lambda cell: cell not in users))

    def ending(self, cell: int, place: int, busy: Collection[int]) -> int | None:
        """A sequence that ends in this cell and is not busy."""
        for number in chain((self._last,), range(len(self.cells))):
            cells = self.cells[number]
            if len(cells) == place + 1 and cells[place] == cell and number not in busy:
                self._last = number
                return number
        return None

    def through(self, cell: int, place: int) -> int | None:
        """A sequence that runs through this cell."""
        for number, cells in enumerate(self.cells):
            if len(cells) > place and cells[place] == cell:
                return number
        return None

    def free(self, busy: Collection[int]) -> int | None:
        """An empty sequence; or one whose cells others have too, else the shortest, emptied. None if all are busy."""
        left = [number for number in range(len(self.cells)) if number not in busy]
        found = next((number for number in left if not self.cells[number]), None)
        if found is None and left:
            found = min(left, key=lambda number: (self._alone(number), len(self.cells[number])))
            self.cut(found, 0)
        return found

    def _alone(self, number: int) -> bool:
        """Whether the last cell of a sequence is in no other."""
        cells = self.cells[number]
        place = len(cells) - 1
        return not any(
            len(other) > place and other[place] == cells[place] for n, other in enumerate(self.cells) if n != number
        )

    def cut(self, number: int, size: int) -> None:
        """Leave a sequence its first `size` cells."""
        self._memory.cut(number, size)
        del self.cells[number][size:]

    def copy(self, source: int, target: int, size: int) -> None:
        """Let an empty sequence run through the first `size` cells of another."""
        self._memory.copy(source, target, size)
        self.cells[target] = self.cells[source][:size]
