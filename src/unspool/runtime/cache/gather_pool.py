"""Slots on a device that gathers: any free slot is as good as another, so texts are lists of slots in any order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.errors import OutOfRoom
from .kv_pool import KVPool


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
