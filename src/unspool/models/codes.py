"""Weights as whole numbers and what groups of them share: what files of few bits hold, and what a kernel may keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from .quant import QuantBlocks

Sizes: TypeAlias = Mapping[str, tuple[int, ...]]
FORMATS = ("Q4_0", "Q4_1")  # of GGUF files, whose blocks are such groups
Reader: TypeAlias = Callable[[str], Tensor]
"""Gives one of the parts by its full name."""


@dataclass(frozen=True)
class GroupedCodes:
    """w = scale·(code − zero), or scale·code + least, for codes [rows, columns] of `bits` bits from 0 on.

    What is shared is [rows, groups], each of as many neighbours in a row; the last group may be cut.
    """

    codes: Tensor
    scale: Tensor
    other: Tensor
    bits: int
    group: int
    leasts: bool = False  # whether `other` are leasts, not zeros

    def whole(self) -> Tensor:
        """The matrix, in float32."""
        scale, other = (self._spread(part.float()) for part in (self.scale, self.other))
        return self.codes.float() * scale + other if self.leasts else (self.codes.float() - other) * scale

    def rows(self, rows: slice) -> GroupedCodes:
        """Some rows of it."""
        return GroupedCodes(
            self.codes[rows], self.scale[rows], self.other[rows], self.bits, self.group, self.leasts
        )  # fmt: skip

    def _spread(self, shared: Tensor) -> Tensor:
        return shared.repeat_interleave(self.group, 1)[:, : self.codes.shape[1]]


@dataclass(frozen=True)
class FloatCodes:
    """w = scale·code for codes [rows, columns] that are floats of 8 bits.

    Scales are [rows, blocks], each of `wide` neighbours in a row; the last block may be cut.
    """

    codes: Tensor
    scale: Tensor
    wide: int

    def whole(self) -> Tensor:
        """The matrix, in float32."""
        return self.codes.float() * self.scale.float().repeat_interleave(self.wide, 1)[:, : self.codes.shape[1]]

    def rows(self, rows: slice) -> FloatCodes:
        """Some rows of it."""
        return FloatCodes(self.codes[rows], self.scale[rows], self.wide)


@dataclass(frozen=True)
class Coded:
    """A tensor of this size, of which the file has these parts; `decode` makes it, or one expert's, in float32.

    `codes`, where there are any, are what it is made of.
    """

    size: tuple[int, ...]
    parts: tuple[str, ...]
    decode: Callable[[Reader], Tensor]
    codes: Callable[[Reader], GroupedCodes | FloatCodes] | None = None


Coding: TypeAlias = Callable[[str, Sizes], Coded | None]
"""How a folder's weights are coded: what a tensor is made of, given the sizes of all; None if it is stored whole."""


def of_groups(size: tuple[int, ...], parts: tuple[str, ...], codes: Callable[[Reader], GroupedCodes]) -> Coded:
    """A matrix that is nothing but codes of groups."""
    return Coded(size, parts, lambda read: codes(read).whole(), codes)


def codes_of(blocks: QuantBlocks) -> GroupedCodes:
    """The codes of a matrix of a GGUF file in one of FORMATS: 32 neighbours share a scale in float16."""
    data = blocks.data.view(len(blocks.data), -1, blocks.format.width)
    leasts = blocks.format.name == "Q4_1"
    shared = data[..., : 4 if leasts else 2].contiguous().view(torch.float16)
    bytes_ = data[..., 4 if leasts else 2 :]
    codes = torch.cat((bytes_ & 15, bytes_ >> 4), -1).flatten(1)
    other = shared[..., 1] if leasts else torch.full_like(shared[..., 0], 8.0)
    return GroupedCodes(codes, shared[..., 0], other, 4, 32, leasts)
