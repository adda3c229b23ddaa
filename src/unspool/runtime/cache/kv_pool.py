"""The key/value pool: a text is a list of slots, a shared prefix is stored once, and forking copies nothing.

Where attention is a view of neighbouring slots, those are kept together; where kernels gather, any free slot will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from ...core.errors import OutOfRoom

Where = slice | Tensor
"""Slots as an index into storage: a slice where they are neighbours in order, else their numbers on the device."""


class KVPool:
    """Storage for the keys and values of `room` tokens, with a count of users per slot.

    Layers are laid out on first write as [heads, room, width], so that a run of neighbouring slots is a view and costs
    no copy. Memory that was never written is never touched. Forwards may leave hidden states in the same slots, which
    then go where keys go: those of the numbers in `noted`, which are those of `Batch.want`.
    """

    gathers = False  # whether scattered slots are read as fast as neighbours
    noted: tuple[int, ...] = ()

    def __init__(self, room: int) -> None:
        self.room = room
        self._users = [0] * room
        self._free = room
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._states: dict[int, Tensor] = {}
        self.noted_states = torch.empty(0)  # [numbers, slots, width], all of them

    # ---- who uses what

    @property
    def in_use(self) -> int:
        """Slots that some text holds."""
        return self.room - self._free

    def take(self, count: int, after: int | None = None) -> list[int]:
        """`count` free slots, behind `after` if those are free, else from the longest free run; all or none."""
        if count > self._free:
            raise OutOfRoom(self._full(count))
        start = self._run_behind(after, count) if after is not None else None
        taken = self._from_longest_runs(count) if start is None else list(range(start, start + count))
        for slot in taken:
            self._users[slot] = 1
        self._free -= count
        return taken

    def share(self, slots: Sequence[int]) -> None:
        """Count one more user of each."""
        for slot in slots:
            self._users[slot] += 1

    def drop(self, slots: Sequence[int]) -> None:
        """Count one user less of each; slots without users are free again."""
        for slot in slots:
            self._users[slot] -= 1
            self._free += self._users[slot] == 0

    def resumable(self, slots: Sequence[int]) -> int:
        """How many of these slots, from the first on, a forward can resume behind: all, without recurrent layers."""
        return len(slots)

    def holding(self, slots: Iterable[int]) -> AbstractContextManager[None]:
        """See to it that a forward can resume behind these slots as long as it lasts."""
        return nullcontext()

    def _full(self, count: int) -> str:
        return (
            f"{count} tokens more do not fit: {self.in_use} of {self.room} slots of the cache are in use. "
            "End or shorten other texts, or load the model with a larger cache."
        )

    def _run_behind(self, after: int, count: int) -> int | None:
        start = after + 1
        fits = start + count <= self.room and not any(self._users[start : start + count])
        return start if fits else None

    def _from_longest_runs(self, count: int) -> list[int]:
        runs: list[tuple[int, int]] = []  # (length, start) of every free run
        slot = 0
        while slot < self.room:
            if self._users[slot]:
                slot += 1
                continue
            start = slot
            try:
                slot = next(i for i in range(start, self.room) if self._users[i])
            except StopIteration:
                slot = self.room
            runs.append((slot - start, start))
        taken: list[int] = []
        # A new text starts in the middle of the longest run if it can, so that the text before it can still grow.
        runs.sort(reverse=True)
        length, start = runs[0]
        if start > 0 and length >= 4 * count:
            start, length = start + length // 2, length - length // 2
            runs[0] = (length, start)
        for length, start in runs:
            taken += range(start, start + min(length, count - len(taken)))
            if len(taken) == count:
                break
        return taken

    # ---- what is in them

    def write(self, layer: int, slots: Sequence[int] | Where, keys: Tensor, values: Tensor) -> None:
        """Store keys and values, each [heads, tokens, width], in these slots."""
        if layer not in self._keys:
            self._keys[layer] = keys.new_empty(keys.shape[0], self.room, keys.shape[2])
            self._values[layer] = values.new_empty(values.shape[0], self.room, values.shape[2])
        at = slots if isinstance(slots, (slice, Tensor)) else self.where(slots, keys.device)
        self._keys[layer][:, at] = keys
        self._values[layer][:, at] = values

    def read(self, layer: int, slots: Sequence[int] | Where) -> tuple[Tensor, Tensor]:
        """The keys and values of these slots, each [heads, tokens, width]: views where the slots are neighbours."""
        keys, values = self._keys[layer], self._values[layer]
        at = slots if isinstance(slots, (slice, Tensor)) else self.where(slots, keys.device)
        return keys[:, at], values[:, at]

    def keep_states(self, numbers: Sequence[int], like: Tensor) -> None:
        """Store hidden states of these numbers from now on, with the width, type and device of `like` [n, width]."""
        self.noted = tuple(numbers)
        self.noted_states = like.new_zeros(len(numbers), self.room + 1, like.shape[1])  # one for padding
        self._states = dict(zip(numbers, self.noted_states, strict=True))

    def note(self, number: int, at: Where, states: Tensor) -> None:
        """Store the hidden states [tokens, width] of one number in these slots."""
        self._states[number][at] = states

    def states(self, slots: Sequence[int]) -> Tensor:
        """The noted hidden states of these slots side by side, [tokens, numbers · width], in the order of `noted`."""
        some = next(iter(self._states.values()))
        at = self.where(slots, some.device)
        return torch.cat([self._states[number][at] for number in self.noted], -1)

    def noted_at(self, number: int, slots: Sequence[int]) -> Tensor:
        """The noted hidden states [tokens, width] of one number in these slots, which may repeat."""
        states = self._states[number]
        return states[torch.tensor(slots, device=states.device)]

    def where(self, slots: Sequence[int], device: torch.device) -> Where:
        """These slots as `write` and `read` take them fastest; a forward works it out once and not once per layer."""
        first = slots[0]
        neighbours = range(first, first + len(slots))
        if slots[-1] == neighbours[-1] and (isinstance(slots, range) or list(slots) == list(neighbours)):
            return slice(first, first + len(slots))
        return torch.tensor(list(slots), device=device)

    def move(self, old: Sequence[int], new: Sequence[int]) -> None:
        """Copy what these slots hold to other slots, in every layer."""
        for stored in (self._keys, self._values):
            for tensor in stored.values():
                tensor[:, list(new)] = tensor[:, list(old)]
        for tensor in self._states.values():
            tensor[list(new)] = tensor[list(old)]


class GatherPool(KVPool):
    """A pool whose free slots lie on a stack; one slot more than `room` takes what padding writes.

    Keys and values of layer i are keys[i] and values[i], [heads, room + 1, width]; sizes[i] are their heads and both
    widths. Kernels read them through a table of slots, so nothing is ever moved.
    """

    gathers = True

    def __init__(
        self, room: int, sizes: Sequence[tuple[int, int, int]], dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__(room)
        self.trash = room
        self.keys = [self._storage(heads, width, dtype, device) for heads, width, _ in sizes]
        self.values = [self._storage(heads, width, dtype, device) for heads, _, width in sizes]
        self._stack = list(range(room - 1, -1, -1))
        self._users = [1] * room  # a free slot waits with its first user counted, so that taking it is taking it off

    def _storage(self, heads: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.zeros(heads, self.room + 1, width, dtype=dtype, device=device)

    def take(self, count: int, after: int | None = None) -> list[int]:
        if count > self._free:
            raise OutOfRoom(self._full(count))
        at = len(self._stack) - count
        taken = self._stack[at:]
        del self._stack[at:]
        self._free -= count
        taken.reverse()
        return taken

    def drop(self, slots: Sequence[int]) -> None:
        users, free = self._users, self._stack
        for slot in slots:
            if users[slot] == 1:
                free.append(slot)
            else:
                users[slot] -= 1
        self._free = len(free)

    def write(self, layer: int, slots: Sequence[int] | slice | Tensor, keys: Tensor, values: Tensor) -> None:
        at = slots if isinstance(slots, (slice, Tensor)) else self.where(slots, keys.device)
        self.keys[layer][:, at], self.values[layer][:, at] = keys, values

    def read(self, layer: int, slots: Sequence[int] | slice | Tensor) -> tuple[Tensor, Tensor]:
        at = slots if isinstance(slots, (slice, Tensor)) else self.where(slots, self.keys[layer].device)
        return self.keys[layer][:, at], self.values[layer][:, at]


class UntouchedPool(GatherPool):
    """The same for kernels that read nothing before it is written: memory that was never written is never touched."""

    def _storage(self, heads: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(heads, self.room + 1, width, dtype=dtype, device=device)
