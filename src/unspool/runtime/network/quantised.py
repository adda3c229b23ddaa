"""Weights of few bits: matrices stored in 8 or 4 bits a weight and multiplied as if they were whole.

Weights alone are rounded; what flows between them keeps its type. Norms, embedding and head stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...core.errors import BadRequest
from .linear import Linear, MakeLinear

WHOLE = "none"
KINDS = (WHOLE, "int8", "int4")
AUTO, PACKED = "auto", "packed"  # what is fastest; what the file has, see `runtime.cpu.packed`
GROUP = 32  # weights that share a scale in 4 bits; so many do in files of 4-bit weights, which are then kept exactly
SHARED = torch.float16  # what the scale and the least of a group are kept in


@dataclass(frozen=True)
class Int8Linear:
    """w = scale·q with a whole number q in −127…127, one scale per row: x ↦ scale · (x·Qᵀ) + b.

    Cost: a byte per weight and 4 per row. Where no kernel of its own reads them, Q is widened for every product.
    """

    weight: Tensor  # int8 [out, in]
    scale: Tensor  # float32 [out]
    bias: Tensor | None

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> Int8Linear:
        """Round a matrix [out, in]."""
        scale = weight.abs().amax(1).float() / 127
        step = torch.where(scale > 0, scale, 1.0)[:, None]
        return cls((weight / step).round().clamp(-127, 127).to(torch.int8), scale, bias)

    def __call__(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight.to(x.dtype)) * self.scale.to(x.dtype)
        return y if self.bias is None else y + self.bias

    def whole(self, dtype: torch.dtype) -> Tensor:
        """The matrix that it stands for."""
        return (self.weight * self.scale[:, None]).to(dtype)


@dataclass(frozen=True)
class Int4Linear:
    """w = least + scale·q with q in 0…15, both per group of `group` neighbours in a row.

    Of the 2·group weights of two groups, word j of `weight` holds those of number j + k·group/4, the lowest bits k = 0.
    Cost: half a byte per weight and 4 bytes per group. Where no kernel of its own reads them, they are widened for
    every product.
    """

    weight: Tensor  # int32 [out, in / 8]
    scale: Tensor  # [out, in / group]
    least: Tensor  # [out, in / group]
    group: int
    bias: Tensor | None

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, group: int = GROUP) -> Int4Linear:
        """Round a matrix [out, in]; `in` is a multiple of two groups."""
        rows, depth = weight.shape
        groups = weight.float().view(rows, depth // group, group)
        least = groups.amin(2).to(SHARED)
        scale = ((groups.amax(2) - least.float()) / 15).to(SHARED)
        step = torch.where(scale > 0, scale.float(), 1.0)[:, :, None]
        q = ((groups - least.float()[:, :, None]) / step).round().clamp(0, 15).to(torch.uint8)
        return cls(packed(q.view(rows, depth), group), scale.contiguous(), least.contiguous(), group, bias)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.whole(x.dtype), self.bias)

    def whole(self, dtype: torch.dtype) -> Tensor:
        """The matrix that it stands for."""
        rows = self.weight.shape[0]
        words = self.weight.view(rows, -1, 1, self.group // 4)
        q = torch.cat([words >> 4 * k & 15 for k in range(8)], 2).view(rows, -1, self.group)
        wide = q.float().mul_(self.scale.float()[:, :, None]).add_(self.least.float()[:, :, None])
        return wide.view(rows, -1).to(dtype)


def packed(q: Tensor, group: int) -> Tensor:
    """Numbers from 0 to 15 [rows, depth] in words, as `Int4Linear` has them; depth is a multiple of two groups."""
    rows, depth = q.shape
    parts = q.view(rows, depth // (2 * group), 8, group // 4)
    words = parts[:, :, 0].int()
    for k in range(1, 8):
        words |= parts[:, :, k].int() << 4 * k
    return words.view(rows, depth // 8)


def rounded(kind: str, make: MakeLinear, head: int) -> MakeLinear:
    """Make matrices in int8 or int4, and as `make` does for whole ones and for the head, which has `head` rows.

    A matrix whose rows are not pairs of groups stays at 8 bits where 4 were asked for.
    """
    if kind not in KINDS:
        raise unknown(kind)

    def matrix(weight: Tensor, bias: Tensor | None) -> Linear:
        if weight.shape[0] == head:
            return make(weight, bias)
        return (
            Int4Linear.of(weight, bias) if kind == "int4" and _paired(weight.shape[1]) else Int8Linear.of(weight, bias)
        )

    return make if kind == WHOLE else matrix


def unknown(kind: str) -> BadRequest:
    """The error for a word that names no way to keep weights."""
    return BadRequest(f"quantization={kind!r} is not known; choose one of: {', '.join((AUTO, PACKED, *KINDS))}")


def bytes_of(kind: str, rows: int, depth: int, dtype: torch.dtype) -> int:
    """What a matrix takes when its weights are kept so."""
    if kind == WHOLE:
        return rows * depth * dtype.itemsize
    if kind == "int8" or not _paired(depth):
        return rows * (depth + 4)
    return rows * (depth // 2 + 2 * SHARED.itemsize * (depth // GROUP))


def _paired(depth: int) -> bool:
    return depth % (2 * GROUP) == 0
