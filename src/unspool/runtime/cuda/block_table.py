"""The block table: for every text on a device, the slots of its tokens in the order of the text."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from ...core.errors import OutOfRoom
from ..cache.sequence import CachedSequence
from .text_lines import TextLines


class BlockTable:
    """A table [lanes + 1, length] of slots, a line per text; the last line is for padding.

    A text keeps its lane from its first forward to its end. What is new in it is told as (index into the flat table,
    slot), to be written by the step itself; much at once is written here.
    """

    def __init__(self, lanes: int, length: int, device: torch.device) -> None:
        self.length, self.device = length, device
        self.table = torch.zeros(lanes + 1, length, dtype=torch.int32, device=device)
        self.trash = lanes
        self.nowhere = lanes * length  # an index into the flat table that nobody reads
        self._free = list(range(lanes - 1, -1, -1))
        self._known: dict[int, tuple[int, int]] = {}  # id of a text -> its lane, entries written there

    @cached_property
    def texts(self) -> TextLines:
        """The tokens of texts whose warps look back, made when the first of them comes."""
        return TextLines(self.trash, self.length, self.device)

    @property
    def in_use(self) -> int:
        """How many lanes (lines of the table) belong to a text."""
        return self.trash - len(self._free)

    def lines(
        self, leaves: Sequence[CachedSequence], behind: Sequence[Sequence[int]] = ()
    ) -> tuple[list[int], list[int], list[int]]:
        """The lanes of these texts, and what must still be written there, as indices and slots.

        `behind` are slots that stand behind each text's own for this step only.
        """
        lanes: list[int] = []
        at: list[int] = []
        new: list[int] = []
        for number, leaf in enumerate(leaves):
            known = self._known.get(id(leaf))
            lane, written = self._taken(leaf) if known is None else known
            lanes.append(lane)
            ready = len(leaf.slots)
            if written != ready:
                written = min(written, ready)
                at += range(lane * self.length + written, lane * self.length + ready)
                new += leaf.slots[written:]
                self._known[id(leaf)] = lane, ready
            if behind and behind[number]:
                start = lane * self.length + ready
                at += range(start, start + len(behind[number]))
                new += behind[number]
        return lanes, at, new

    def _taken(self, leaf: CachedSequence) -> tuple[int, int]:
        if not self._free:
            raise OutOfRoom(f"all {self.trash} lanes of this model are taken; end some texts first")
        known = self._known[id(leaf)] = self._free.pop(), 0
        weakref.finalize(leaf, self._gone, id(leaf))
        return known

    def left(self, leaf: CachedSequence) -> None:
        """Free the lane of a text that nobody goes on with."""
        self._gone(id(leaf))

    def _gone(self, key: int) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self._free.append(known[0])

    def kept(self, leaf: CachedSequence, written: int) -> None:
        """Take note that the first `written` slots of a text stand in its lane."""
        self._known[id(leaf)] = self._known[id(leaf)][0], written

    def cut(self, leaf: CachedSequence, size: int) -> None:
        """Take note that a text has other slots from its place `size` on than stand in its lane."""
        known = self._known.get(id(leaf))
        if known is not None:
            self._known[id(leaf)] = known[0], min(known[1], size)

    def write(self, at: Sequence[int], slots: Sequence[int]) -> None:
        """Write entries now, behind what the device was asked to do, without waiting for that."""
        pairs = torch.frombuffer(array("q", (*at, *slots)), dtype=torch.int64)
        if self.device.type == "cuda":
            pairs = pairs.pin_memory().to(self.device, non_blocking=True)
        self.table.view(-1).index_put_((pairs[: len(at)],), pairs[len(at) :].int())

    def rows(self, lanes: Tensor, length: int) -> Tensor:
        """The lines of these lanes, up to a length."""
        return self.table[:, :length].index_select(0, lanes)
