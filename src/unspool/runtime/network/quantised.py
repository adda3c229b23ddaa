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
PARTS = 4  # groups of a piece
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
    """w = least + scale·q with q in 0…15, both per group of 32 neighbours in a row.

    Rows are cut into pieces of four groups, and what all rows have at one place stands together. In a piece, bits 4·p
    to 4·p + 3 of word j hold q of number 32·p + j; `shared` has the scales of its four groups, then their leasts. A
    last piece that is not full ends in zeros.
    Cost: half a byte per weight and 4 bytes per group. Where no kernel of its own reads them, they are widened for
    every product.
    """

    weight: Tensor  # int16 [pieces, out, 32]
    shared: Tensor  # float16 [pieces, out, 8]
    depth: int
    bias: Tensor | None

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> Int4Linear:
        """Round a matrix [out, in]; `in` is a multiple of a group."""
        rows, depth = weight.shape
        groups = weight.float().view(rows, depth // GROUP, GROUP)
        least = groups.amin(2).to(SHARED)
        scale = ((groups.amax(2) - least.float()) / 15).to(SHARED)
        step = torch.where(scale > 0, scale.float(), 1.0)[:, :, None]
        q = ((groups - least.float()[:, :, None]) / step).round().clamp(0, 15).to(torch.uint8)
        missing = -(depth // GROUP) % PARTS
        q = F.pad(q, (0, 0, 0, missing)).view(rows, -1, PARTS, GROUP)
        both = [F.pad(part, (0, missing)).view(rows, -1, PARTS) for part in (scale, least)]
        return cls(packed(q), torch.cat(both, 2).transpose(0, 1).contiguous(), depth, bias)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.whole(x.dtype), self.bias)

    def whole(self, dtype: torch.dtype) -> Tensor:
        """The matrix that it stands for."""
        words = self.weight.transpose(0, 1)
        q = torch.stack([words >> 4 * p & 15 for p in range(PARTS)], 2)
        shared = self.shared.transpose(0, 1).float()
        scale, least = shared[:, :, :PARTS], shared[:, :, PARTS:]
        wide = q.float().mul_(scale[..., None]).add_(least[..., None])
        return wide.view(len(q), -1)[:, : self.depth].to(dtype)


def packed(q: Tensor) -> Tensor:
    """Numbers from 0 to 15 [rows, pieces, 4, 32] in words, as `Int4Linear` has them."""
    words = q[:, :, 0].short()
    for p in range(1, PARTS):
        words |= q[:, :, p].short() << 4 * p
    return words.transpose(0, 1).contiguous()


def rounded(kind: str, make: MakeLinear, head: int) -> MakeLinear:
    """Make matrices in int8 or int4, and as `make` does for whole ones and for the head, which has `head` rows.

    A matrix whose rows are no whole groups stays at 8 bits where 4 were asked for.
    """
    if kind not in KINDS:
        raise unknown(kind)

    def matrix(weight: Tensor, bias: Tensor | None) -> Linear:
        if weight.shape[0] == head:
            return make(weight, bias)
        return (
            Int4Linear.of(weight, bias) if kind == "int4" and _grouped(weight.shape[1]) else Int8Linear.of(weight, bias)
        )

    return make if kind == WHOLE else matrix


def unknown(kind: str) -> BadRequest:
    """The error for a word that names no way to keep weights."""
    return BadRequest(f"quantization={kind!r} is not known; choose one of: {', '.join((AUTO, PACKED, *KINDS))}")


def bytes_of(kind: str, rows: int, depth: int, dtype: torch.dtype) -> int:
    """What a matrix takes when its weights are kept so."""
    if kind == WHOLE:
        return rows * depth * dtype.itemsize
    if kind == "int8" or not _grouped(depth):
        return rows * (depth + 4)
    return rows * -(-depth // (PARTS * GROUP)) * PARTS * (GROUP // 2 + 2 * SHARED.itemsize)


def _grouped(depth: int) -> bool:
    return depth % GROUP == 0
