"""The logits of llama.cpp's last call, left in its memory as long as nobody looks at them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from threading import Lock

import torch
from torch import Tensor

from ..cpu.kernel_outputs import best_at


class LastOutputs:
    """Rows of logits at addresses that the next call overwrites; before that they are copied, if anybody holds them.

    In greedy decoding nobody does: the best token is found where the rows are. To copy a row that is as wide as the
    vocabulary takes as long as much of the rest.
    """

    def __init__(self, rows: Sequence[int], vocab: int, owner: object) -> None:
        self._rows, self.vocab = rows, vocab
        self._owner: object | None = owner  # whose memory it is, which lives as long as it may be read
        self._copied: Tensor | None = None
        self._lock = Lock()  # another thread may look while the next call is prepared

    @property
    def logits(self) -> Tensor:
        """All logits, [rows, vocab], copied now if they were not."""
        with self._lock:
            if self._copied is None:
                copied = torch.empty(len(self._rows), self.vocab)
                for number, at in enumerate(self._rows):
                    ctypes.memmove(copied.data_ptr() + 4 * self.vocab * number, at, 4 * self.vocab)
                self._copied, self._owner = copied, None
            return self._copied

    def best(self) -> list[int]:
        """The best token of every row, as `KernelLaw` takes it; to be asked before the next call."""
        return [best_at(at, self.vocab) for at in self._rows]
