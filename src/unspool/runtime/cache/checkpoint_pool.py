"""Checkpoints of recurrent layers: the state after a token, kept beside the slot of its keys and values.

A drafted tree leaves one after every node, so that rolling back is a choice of slot and computes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

from .kv_pool import GatherPool, KVPool

Part = tuple[int, str]
"""One tensor of a state: the number of its layer and its name there."""
STATES, BUDGET = 64, 1 << 30  # checkpoints that are always kept, and bytes up to which more of them are
ZERO, SCRATCH = 0, 1  # the state before the first token, and one that nobody keeps


def usual_states(size: int, room: int) -> int:
    """How many states of `size` bytes are kept beside a cache of `room` tokens."""
    return min(room, max(STATES, BUDGET // size)) if size else 0


class CheckpointPool:
    """Storage for about `room` states, each found by the slot of the token that it stands behind.

    The one that was used longest ago gives way. Lasting ones, from which texts to come may start, go last, as long as
    they are not more than half of all. What one forward needs is never taken from it: a forward that needs more than
    `room` makes the pool grow. A part is laid out on first write as [states, …], and untouched where never written.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._passing: OrderedDict[int, int] = OrderedDict()  # by slot, the number of its state, last used last
        self._lasting: OrderedDict[int, int] = OrderedDict()
        self._free: list[int] = []
        self._size = 2  # numbers that were ever given out
        self._held: set[int] = set()  # slots whose states stay for the time being
        self._stored: dict[Part, Tensor] = {}

    def __contains__(self, slot: int) -> bool:
        return slot in self._passing or slot in self._lasting

    def __len__(self) -> int:
        return len(self._passing) + len(self._lasting)

    def number(self, slot: int) -> int:
        """The number of the state behind a slot, or of the one before all text for −1; it counts as used."""
        if slot < 0:
            return ZERO
        kept = self._passing if slot in self._passing else self._lasting
        kept.move_to_end(slot)
        return kept[slot]

    def take(self, behind: Iterable[int], passing: Sequence[int], lasting: Sequence[int]) -> None:
        """Make room for states behind these new slots, without letting go of those behind the slots of `behind`."""
        new = [*passing, *lasting]
        self.drop(new)
        needed = self._held.union(behind, new)
        for kept, slots in ((self._passing, passing), (self._lasting, lasting)):
            for slot in slots:
                kept[slot] = self._number(needed)

    @contextmanager
    def holding(self, slots: Iterable[int]) -> Iterator[None]:
        """Let go of no state behind these slots meanwhile."""
        before, self._held = self._held, self._held.union(slots)
        try:
            yield
        finally:
            self._held = before

    def lend(self, count: int, behind: Iterable[int]) -> list[int]:
        """Numbers of states that stand behind no slot yet, without letting go of those behind the slots of `behind`."""
        needed = self._held.union(behind)
        return [self._number(needed) for _ in range(count)]

    def give_back(self, numbers: Iterable[int]) -> None:
        """Take back numbers that were lent."""
        self._free += numbers

    def attach(self, slot: int, number: int) -> None:
        """Have the state of a number that was lent found behind a slot."""
        self.drop([slot])
        self._passing[slot] = number

    def drop(self, slots: Iterable[int]) -> None:
        """Forget the states behind these slots."""
        for slot in slots:
            number = self._passing.pop(slot, None) or self._lasting.pop(slot, None)
            if number is not None:
                self._free.append(number)

    def move(self, old: Sequence[int], new: Sequence[int]) -> None:
        """Have the states behind these slots found behind others."""
        held = [
            (kept, slot, kept.pop(before))
            for before, slot in zip(old, new, strict=True)
            for kept in (self._passing, self._lasting)
            if before in kept
        ]
        self.drop(new)
        for kept, slot, number in held:
            kept[slot] = number

    def read(self, part: Part, numbers: Tensor) -> Tensor:
        """One part of these states [states, …], copied."""
        return self._stored[part][numbers]

    def write(self, part: Part, numbers: Tensor, states: Tensor) -> None:
        """Store one part of these states [states, …]."""
        self._stored[part][numbers] = states

    def stored(self, part: Part) -> Tensor:
        """One part of all states [states, …], where kernels read and write it."""
        return self._stored[part]

    def lay_out(self, part: Part, size: Sequence[int], dtype: torch.dtype, device: torch.device) -> bool:
        """Have storage for a part of this size of all states that have been taken; whether it had to move."""
        old = self._stored.get(part)
        if old is not None and len(old) >= self._size:
            return False
        least = self.room + 2 if old is None else len(old) * 3 // 2  # so that growing by little is done seldom
        whole = torch.empty(max(self._size, least), *size, dtype=dtype, device=device)
        if old is None:
            whole[ZERO] = 0
        else:
            whole[: len(old)] = old
        self._stored[part] = whole
        return True

    def _number(self, needed: set[int]) -> int:
        if self._free:
            return self._free.pop()
        if self._size < self.room + 2:
            self._size += 1
            return self._size - 1
        crowded = len(self._lasting) > self.room // 2
        for kept in (self._lasting, self._passing) if crowded else (self._passing, self._lasting):
            oldest = next((slot for slot in kept if slot not in needed), None)
            if oldest is not None:
                return kept.pop(oldest)
        self._size += 1
        return self._size - 1


class _CheckpointedPool(KVPool):
    """What all pools do whose slots may carry a checkpoint."""

    checkpoints: CheckpointPool

    def resumable(self, slots: Sequence[int]) -> int:
        for count in range(len(slots), 0, -1):
            if slots[count - 1] in self.checkpoints:
                return count
        return 0

    def holding(self, slots: Iterable[int]) -> AbstractContextManager[None]:
        return self.checkpoints.holding(slots)


class RecurrentPool(_CheckpointedPool):
    """A pool whose slots may carry a checkpoint; a slot that is free again has none."""

    def __init__(self, room: int, checkpoints: CheckpointPool) -> None:
        super().__init__(room)
        self.checkpoints = checkpoints

    def drop(self, slots: Sequence[int]) -> None:
        super().drop(slots)
        self.checkpoints.drop(slot for slot in slots if not self._users[slot])

    def move(self, old: Sequence[int], new: Sequence[int]) -> None:
        super().move(old, new)
        self.checkpoints.move(old, new)


class RecurrentGatherPool(_CheckpointedPool, GatherPool):
    """The same where kernels find slots through a table."""

    def __init__(
        self,
        room: int,
        sizes: Sequence[tuple[int, int, int]],
        dtype: torch.dtype,
        device: torch.device,
        checkpoints: CheckpointPool,
    ) -> None:
        GatherPool.__init__(self, room, sizes, dtype, device)
        self.checkpoints = checkpoints

    def drop(self, slots: Sequence[int]) -> None:
        free = len(self._stack)
        GatherPool.drop(self, slots)
        self.checkpoints.drop(self._stack[free:])
