"""A mask as an engine writes it, a bit per token; and as what is asked for, by a table of all bytes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..law import NEVER

_BYTES = ((torch.arange(256)[:, None] >> torch.arange(8)) & 1).bool()
_MASKS = _BYTES.view(torch.int64).flatten()  # eight booleans side by side are as wide as one such number
_WEIGHTS = torch.where(_BYTES, 0.0, NEVER).to(torch.bfloat16).view(torch.complex128).flatten()  # and eight of these


class Bits(NamedTuple):
    """Which of `size` tokens may follow: bit i of byte j tells it of token 8·j + i."""

    bytes: Tensor  # uint8
    size: int

    @staticmethod
    def none(size: int) -> Bits:
        """No token may follow."""
        return Bits(torch.zeros((size + 7) // 8, dtype=torch.uint8), size)

    def __contains__(self, token: object) -> bool:
        assert isinstance(token, int)
        return 0 <= token < self.size and int(self.bytes[token >> 3]) >> (token & 7) & 1 == 1

    def mask(self) -> Tensor:
        """As booleans [size]."""
        return _MASKS.index_select(0, self.bytes.int()).view(torch.bool)[: self.size]

    def weights(self) -> Tensor:
        """As log-weights [size]: 0 for what may follow, −∞ for what may not. Added to scores, they are the mask."""
        return _WEIGHTS.index_select(0, self.bytes.int()).view(torch.bfloat16)[: self.size]
