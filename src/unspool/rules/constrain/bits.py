"""A mask as an engine writes it, a bit per token; and as what is asked for, by a table of all bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import Lock, local

import torch
from torch import Tensor

from ...core.law import NEVER

KEPT = 256  # masks of a vocabulary that are remembered; 200 kB each for 49k tokens, if many tokens may follow
FEW = 1024  # bytes of a mask, one that forbids nearly all, whose tokens are listed

_BYTES = ((torch.arange(256)[:, None] >> torch.arange(8)) & 1).bool()
_MASKS = _BYTES.view(torch.int64).flatten()  # eight booleans side by side are as wide as one such number
_WEIGHTS = torch.where(_BYTES, 0.0, NEVER).to(torch.bfloat16).view(torch.complex128).flatten()  # and eight of these


def packed(mask: Tensor) -> Tensor:
    """Booleans as bits, eight to a byte, the first in the lowest."""
    eights = torch.nn.functional.pad(mask.to(torch.uint8), (0, -len(mask) % 8)).view(-1, 8)
    return (eights << torch.arange(8, dtype=torch.uint8)).sum(1, dtype=torch.uint8)


class Bits:
    """Which of `size` tokens may follow: bit i of byte j tells it of token 8·j + i."""

    def __init__(self, given: bytes, size: int) -> None:
        self.given, self.size = given, size
        self._again = False  # whether it has been applied before: many masks never come again

    @staticmethod
    def none(size: int) -> Bits:
        """No token may follow."""
        return Bits(bytes((size + 7) // 8), size)

    def __contains__(self, token: object) -> bool:
        assert isinstance(token, int)
        return 0 <= token < self.size and self.given[token >> 3] >> (token & 7) & 1 == 1

    @cached_property
    def octets(self) -> Tensor:
        """As a tensor of uint8."""
        return torch.frombuffer(bytearray(self.given), dtype=torch.uint8)

    def mask(self) -> Tensor:
        """As booleans [size]."""
        return _MASKS.index_select(0, self.octets.int()).view(torch.bool)[: self.size]

    def bind(self, scores: Tensor) -> Tensor:
        """The scores of what may follow, and −∞ for what may not; on a CPU."""
        if not self._again:
            self._again = True
            return scores + self._weights  # an addition takes a quarter of the time of a choice
        if (few := self._few) is None:
            return scores + (self._weights if scores.itemsize == 2 else self._wide)
        return torch.full_like(scores, NEVER).index_copy_(0, few, scores.index_select(0, few))

    @cached_property
    def _few(self) -> Tensor | None:
        """The tokens that may follow, unless they are many."""
        held = self.octets.nonzero()
        if len(held) > FEW:
            return None
        which = _BYTES.index_select(0, self.octets.index_select(0, held[:, 0]).int())
        tokens = (8 * held + torch.arange(8))[which]
        return tokens[tokens < self.size]

    @cached_property
    def _wide(self) -> Tensor:
        """The same as `_weights`, which takes longer to make and is added sooner."""
        return self._weights.float()

    @property
    def _weights(self) -> Tensor:
        """As log-weights [size]: 0 for what may follow, −∞ for what may not."""
        return _WEIGHTS.index_select(0, self.octets.int()).view(torch.bfloat16)[: self.size]


class MaskCache:
    """The masks of one vocabulary, the same object for the same bits.

    A grammar asks for the same few again and again (in a string nearly everything may follow), so what has been made of
    one is worth keeping. Grammars of several threads may use it at once.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._kept: dict[bytes, Bits] = {}
        self._lock, self._scratch = Lock(), local()

    def read(self, write: Callable[[Tensor], None]) -> Bits:
        """The mask that `write` puts into 32-bit words."""
        if not hasattr(self._scratch, "words"):  # of each thread its own
            self._scratch.buffer = bytearray((self.size + 31) // 32 * 4)
            self._scratch.words = torch.frombuffer(self._scratch.buffer, dtype=torch.int32)  # the same memory
        write(self._scratch.words)
        key = bytes(self._scratch.buffer)
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = Bits(key, self.size)
                if len(self._kept) > KEPT:
                    del self._kept[next(iter(self._kept))]
        return kept
