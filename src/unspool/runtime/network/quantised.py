"""Weights of few bits: matrices stored in 8 or 4 bits a weight and multiplied as if they were whole.

Weights alone are rounded; what flows between them keeps its type. Norms, embedding and head stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ... import models
from ...core.errors import BadRequest
from ...models.quant import GROUP, SHARED
from .linear import Linear, MakeLinear

WHOLE = "none"
ROUNDED = ("int8", "int4")
KINDS = (WHOLE, *ROUNDED)
AUTO, PACKED = "auto", "packed"  # what is fastest; what the file has, see `runtime.cpu.packed`
TILE, PARTS = 16, 2  # rows of a tile, and groups of a row in each piece of it
WORDS = TILE * PARTS * GROUP // 8  # of a piece of 4-bit weights


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
class TiledInt8Linear:
    """The same weights as `Int8Linear` has, stored as `kernels.fewbits.product` takes them.

    A byte is q + 128; tiles of 16 rows are cut into pieces of 64 numbers, filled up with zeros.
    """

    weight: Tensor  # int32 [tiles, pieces, 256]
    scale: Tensor  # float32 [out]
    size: tuple[int, int]
    bias: Tensor | None

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> TiledInt8Linear:
        """Round a matrix [out, in]; `in` is a multiple of a group."""
        plain = Int8Linear.of(weight, bias)
        return cls.stored(plain.weight, plain.scale, bias)

    @classmethod
    def stored(cls, q: Tensor, scale: Tensor, bias: Tensor | None) -> TiledInt8Linear:
        """Lay out numbers q from −128 to 127 [out, in] with a scale for every row."""
        return cls(_tiled(q ^ -128, -128), scale, (q.shape[0], q.shape[1]), bias)

    def __call__(self, x: Tensor) -> Tensor:
        y = F.linear(x, self._numbers().to(x.dtype)) * self.scale.to(x.dtype)
        return y if self.bias is None else y + self.bias

    def whole(self, dtype: torch.dtype) -> Tensor:
        """The matrix that it stands for."""
        return (self._numbers() * self.scale[:, None]).to(dtype)

    def _numbers(self) -> Tensor:
        return _untiled(self.weight, self.size) ^ -128


@dataclass(frozen=True)
class TiledFloat8Linear:
    """w = scale·q with q in float8_e4m3fn, stored as `kernels.fewbits.product` takes it.

    There is a scale for every row, or for every piece of 64 numbers of 16 rows.
    Cost: a byte per weight and 4 per row or piece. Where no kernel of its own reads them, they are widened for every
    product.
    """

    weight: Tensor  # int32 [tiles, pieces, 256]
    scale: Tensor  # float32 [out] or [tiles, pieces]
    size: tuple[int, int]
    bias: Tensor | None

    @classmethod
    def stored(cls, q: Tensor, scale: Tensor, bias: Tensor | None) -> TiledFloat8Linear:
        """Lay out numbers q [out, in] with scales as they are kept."""
        return cls(_tiled(q.view(torch.int8), 0), scale, (q.shape[0], q.shape[1]), bias)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.whole(x.dtype), self.bias)

    def whole(self, dtype: torch.dtype) -> Tensor:
        """The matrix that it stands for."""
        scale, (rows, depth) = self.scale, self.size
        if scale.dim() == 1:
            scale = scale[:, None]
        else:
            scale = scale.repeat_interleave(TILE, 0)[:rows].repeat_interleave(PARTS * GROUP, 1)[:, :depth]
        return (_untiled(self.weight, self.size).view(torch.float8_e4m3fn).float() * scale).to(dtype)


def _tiled(q: Tensor, rest: int) -> Tensor:
    """Bytes [out, in] as int32 [tiles, pieces, 256]: tiles of 16 rows, pieces of 64 numbers, filled up with `rest`."""
    rows, depth = q.shape
    q = F.pad(q, (0, -depth % (PARTS * GROUP), 0, -rows % TILE), value=rest)
    tiles, pieces = len(q) // TILE, q.shape[1] // (PARTS * GROUP)
    # [tile, line l of two, g, piece, group p, t, m, i, h] to [tile, piece, p, g, t, m, l, (h, i)]
    q = q.view(tiles, 2, 8, pieces, PARTS, 4, 2, 2, 2).permute(0, 3, 4, 2, 5, 6, 1, 8, 7)
    return q.reshape(tiles, pieces, -1).view(torch.int32)


def _untiled(words: Tensor, size: tuple[int, int]) -> Tensor:
    """The bytes [out, in] that stand in such tiles."""
    (tiles, pieces), (rows, depth) = words.shape[:2], size
    q = words.view(torch.int8).view(tiles, pieces, PARTS, 8, 4, 2, 2, 2, 2)
    return q.permute(0, 6, 3, 1, 2, 4, 5, 8, 7).reshape(tiles * TILE, -1)[:rows, :depth]


@dataclass(frozen=True)
class Int4Linear:
    """w = least + scale·q with q in 0…15, both per group of 32 neighbours in a row; with `zeros`, scale·(q − zero).

    Stored as `kernels.fewbits.product` takes it: tiles of 16 rows, cut into pieces of two groups, filled up with zeros,
    and behind the weights of a piece what its groups share.
    Cost: half a byte per weight and 4 bytes per group. Where no kernel of its own reads them, they are widened for
    every product.
    """

    weight: Tensor  # int32 [tiles, pieces, 160]
    size: tuple[int, int]
    bias: Tensor | None
    zeros: bool = False

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> Int4Linear:
        """Round a matrix [out, in]; `in` is a multiple of a group."""
        return cls.stored(*models.rounding.four_bits(weight), bias)

    @classmethod
    def stored(cls, q: Tensor, scale: Tensor, least: Tensor, bias: Tensor | None, zeros: bool = False) -> Int4Linear:
        """Lay out numbers q [out, groups, 32] from 0 to 15, a scale and a least for every group, in float16.

        With `zeros`, −zero stands in place of the least.
        """
        rows, size = len(q), (len(q), q.shape[1] * GROUP)
        more = (0, -q.shape[1] % PARTS, 0, -rows % TILE)  # groups and rows that fill up the last ones
        q, scale, least = F.pad(q, (0, 0, *more)), F.pad(scale, more), F.pad(least, more)
        tiles, pieces = len(q) // TILE, q.shape[1] // PARTS
        # [tile, line l of two, g, piece, group p, t, m, i, h] to [tile, piece, g, t, p, m, h, i, l]
        q = q.view(tiles, 2, 8, pieces, PARTS, 4, 2, 2, 2).permute(0, 3, 2, 5, 4, 6, 8, 7, 1).contiguous()
        words = (q[..., 0] | q[..., 1] << 4).view(tiles, pieces, -1).view(torch.int32)
        both = torch.stack((scale, least)).view(2, tiles, 2, 8, pieces, PARTS).permute(1, 4, 3, 0, 2, 5)
        shared = both.reshape(tiles, pieces, -1).view(torch.int32)
        return cls(torch.cat((words, shared), 2), size, bias, zeros)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.whole(x.dtype), self.bias)

    def whole(self, dtype: torch.dtype) -> Tensor:
        """The matrix that it stands for."""
        (tiles, pieces), (rows, depth) = self.weight.shape[:2], self.size
        words, shared = self.weight[..., :WORDS], self.weight[..., WORDS:]
        shifts = torch.arange(0, 32, 4, device=self.weight.device, dtype=torch.int32)
        q = (words[..., None] >> shifts & 15).view(tiles, pieces, 8, 4, PARTS, 2, 2, 2, 2)
        both = shared.contiguous().view(SHARED).float().view(tiles, pieces, 8, 2, 2, PARTS)
        both = both.permute(3, 0, 4, 2, 1, 5)[..., None]
        wide = q.permute(0, 8, 2, 1, 4, 3, 5, 7, 6).reshape(tiles, 2, 8, pieces, PARTS, GROUP)
        found = (wide + both[1]) * both[0] if self.zeros else wide * both[0] + both[1]
        return found.view(tiles * TILE, -1)[:rows, :depth].to(dtype)


def rounded(
    kind: str, make: MakeLinear, head: int, eight: type[Int8Linear | TiledInt8Linear] = Int8Linear
) -> MakeLinear:
    """Make matrices in int8 or int4, and as `make` does for whole ones and for the head, which has `head` rows.

    A matrix whose rows are no whole groups stays at 8 bits where 4 were asked for. `eight` is what those of 8 bits are
    where their rows are whole groups.
    """
    if kind not in KINDS:
        raise unknown(kind)

    def matrix(weight: Tensor, bias: Tensor | None) -> Linear:
        if weight.shape[0] == head:
            return make(weight, bias)
        if not _grouped(weight.shape[1]):
            return Int8Linear.of(weight, bias)
        return Int4Linear.of(weight, bias) if kind == "int4" else eight.of(weight, bias)

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
    groups = -(-depth // (PARTS * GROUP)) * PARTS
    return -(-rows // TILE) * TILE * groups * (GROUP // 2 + 2 * SHARED.itemsize)


def _grouped(depth: int) -> bool:
    return depth % GROUP == 0
