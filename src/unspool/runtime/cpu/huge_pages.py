"""Memory for weights in huge pages, where the system has them.

A forward reads every weight once. In pages of 4 kB it asks for the address of a page 25,000 times for 100 MB, and what
the processor fetches ahead ends with each of them; in pages of 2 MB neither is felt.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import torch
from torch import Tensor

PAGE = 1 << 21
REGION = 1 << 25  # bytes that are mapped at a time; what of them is never written takes no memory
ALIGNED = 64


class HugePages:
    """Hands out memory that is written once and kept as long as anybody holds it, piece behind piece."""

    def __init__(self) -> None:
        self._region, self._taken = torch.empty(0, dtype=torch.uint8), 0

    def take(self, size: int) -> Tensor:
        """So many bytes, with anything in them."""
        if self._taken + size > len(self._region):
            self._region, self._taken = _mapped(max(size, REGION)), 0
        start = self._taken
        self._taken += -(-size // ALIGNED) * ALIGNED
        return self._region[start : start + size]


def _mapped(size: int) -> Tensor:
    """At least so many bytes, from the start of a huge page on."""
    space = mmap.mmap(-1, -(-size // PAGE) * PAGE + PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system that has none
            space.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(space, dtype=torch.uint8)
    return whole[-whole.data_ptr() % PAGE :]
