"""Block-quantised numbers: how the GGUF block formats spell float32, decoded exactly and in bulk.

Every decoder maps raw bytes [blocks, block bytes] to float32 [blocks, block size] with the operations in the order the
format defines them, one rounding per operation, so that the result is the same bit for bit on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.errors import BadModel

GROUP = 32  # numbers of a small block, which share a scale
SHARED = torch.float16  # what that is kept in


@dataclass(frozen=True)
class Format:
    """How a GGUF type is stored: `size` numbers in `width` bytes, and the function that decodes blocks of them."""

    name: str
    size: int
    width: int
    decode: Callable[[Tensor], Tensor]


def _halves(blocks: Tensor, start: int, count: int = 1) -> Tensor:
    """Read `count` float16 numbers at byte `start` of every block, as float32."""
    return blocks[:, start : start + 2 * count].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor) -> Tensor:
    """Split bytes [n, k] into their low halves followed by their high halves, [n, 2k]."""
    return torch.cat((packed & 15, packed >> 4), dim=-1)


def _fifth_bits(packed: Tensor) -> Tensor:
    """Spread 4 bytes [n, 4] into 32 bits [n, 32], each shifted to the place of a fifth bit."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return ((packed.unsqueeze(-1) >> shifts) & 1).reshape(packed.shape[0], 32) << 4


def f32(blocks: Tensor) -> Tensor:
    """Decode IEEE single precision: the bytes themselves."""
    return blocks.contiguous().view(torch.float32)


def f16(blocks: Tensor) -> Tensor:
    """Decode IEEE half precision."""
    return blocks.contiguous().view(torch.float16).float()


def bf16(blocks: Tensor) -> Tensor:
    """Decode bfloat16: the upper half of a float32."""
    return blocks.contiguous().view(torch.bfloat16).float()


def q8_0(blocks: Tensor) -> Tensor:
    """Decode x = d·q with q in int8, 32 numbers a block."""
    return blocks[:, 2:].view(torch.int8).float().mul_(_halves(blocks, 0))


def q4_0(blocks: Tensor) -> Tensor:
    """Decode x = d·(q − 8) with 4-bit q, 32 numbers a block."""
    return _nibbles(blocks[:, 2:]).float().sub_(8).mul_(_halves(blocks, 0))


def q4_1(blocks: Tensor) -> Tensor:
    """Decode x = d·q + m with 4-bit q, 32 numbers a block."""
    return _nibbles(blocks[:, 4:]).float().mul_(_halves(blocks, 0)).add_(_halves(blocks, 2))


def q5_0(blocks: Tensor) -> Tensor:
    """Decode x = d·(q − 16) with 5-bit q whose top bits lie apart, 32 numbers a block."""
    q = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return q.float().sub_(16).mul_(_halves(blocks, 0))


def q5_1(blocks: Tensor) -> Tensor:
    """Decode x = d·q + m with 5-bit q whose top bits lie apart, 32 numbers a block."""
    q = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return q.float().mul_(_halves(blocks, 0)).add_(_halves(blocks, 2))


def _scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Unpack 12 bytes into eight 6-bit scales and eight 6-bit minima."""
    low, mid, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scale = torch.cat((low & 63, (high & 15) | ((low >> 2) & 48)), dim=1)
    minimum = torch.cat((mid & 63, (high >> 4) | ((mid >> 2) & 48)), dim=1)
    return scale.float(), minimum.float()


def _affine_k(blocks: Tensor, q: Tensor) -> Tensor:
    """Apply x = (d·scale)·q − (dmin·minimum) to q [n, 8, 32]; d, dmin and the scales lead the block."""
    scale, minimum = _scales(blocks[:, 4:16])
    scale, minimum = scale.mul_(_halves(blocks, 0)), minimum.mul_(_halves(blocks, 2))
    return q.float().mul_(scale.unsqueeze(-1)).sub_(minimum.unsqueeze(-1)).flatten(1)


def q4_k(blocks: Tensor) -> Tensor:
    """Decode 256 numbers in eight groups of 4-bit q, each with its own 6-bit scale and minimum."""
    packed = blocks[:, 16:].reshape(-1, 4, 1, 32)
    return _affine_k(blocks, torch.cat((packed & 15, packed >> 4), dim=2).reshape(-1, 8, 32))


def q5_k(blocks: Tensor) -> Tensor:
    """Decode 256 numbers in eight groups of 5-bit q, each with its own 6-bit scale and minimum."""
    packed = blocks[:, 48:].reshape(-1, 4, 1, 32)
    low = torch.cat((packed & 15, packed >> 4), dim=2).reshape(-1, 8, 32)
    # Bit g of byte j is the fifth bit of number j in group g.
    shifts = torch.arange(8, dtype=torch.uint8).reshape(8, 1)
    high = ((blocks[:, 16:48].unsqueeze(1) >> shifts) & 1) << 4
    return _affine_k(blocks, low | high)


def q6_k(blocks: Tensor) -> Tensor:
    """Decode 256 numbers x = (d·scale)·(q − 32) in sixteen groups of 6-bit q with int8 scales."""
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = torch.cat((low & 15, low >> 4), dim=2).reshape(-1, 8, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    shifts = torch.tensor((0, 2, 4, 6), dtype=torch.uint8).reshape(4, 1)
    q = low | (((high >> shifts) & 3) << 4).reshape(-1, 8, 32)
    scale = blocks[:, 192:208].view(torch.int8).float().mul_(_halves(blocks, 208))
    return q.reshape(-1, 16, 16).float().sub_(32).mul_(scale.unsqueeze(-1)).flatten(1)


def _quarters(packed: Tensor) -> Tensor:
    """Split bytes [n, k] into 2-bit numbers: of each run of 32 bytes the lowest pairs of bits first, [n, 4k]."""
    shifts = torch.tensor((0, 2, 4, 6), dtype=torch.uint8).reshape(4, 1)
    return ((packed.reshape(len(packed), -1, 1, 32) >> shifts) & 3).flatten(1)


def q2_k(blocks: Tensor) -> Tensor:
    """Decode 256 numbers x = (d·scale)·q − (dmin·minimum) in sixteen groups of 2-bit q with 4-bit scales and minima."""
    scale = (blocks[:, :16] & 15).float().mul_(_halves(blocks, 80)).unsqueeze(-1)
    minimum = (blocks[:, :16] >> 4).float().mul_(_halves(blocks, 82)).unsqueeze(-1)
    return _quarters(blocks[:, 16:80]).reshape(-1, 16, 16).float().mul_(scale).sub_(minimum).flatten(1)


def q3_k(blocks: Tensor) -> Tensor:
    """Decode 256 numbers x = (d·(scale − 32))·(q − 4) in sixteen groups of 3-bit q, whose top bits lie apart."""
    low, high = blocks[:, 96:104], blocks[:, 104:108]
    low = torch.cat((low & 15, low >> 4), dim=1)
    high = torch.cat([(high >> shift) & 3 for shift in (0, 2, 4, 6)], dim=1)
    scale = (low | high << 4).float().sub_(32).mul_(_halves(blocks, 108)).unsqueeze(-1)
    shifts = torch.arange(8, dtype=torch.uint8).reshape(8, 1)
    top = ((blocks[:, None, :32] >> shifts) & 1).flatten(1) << 2
    return (_quarters(blocks[:, 32:96]) | top).reshape(-1, 16, 16).float().sub_(4).mul_(scale).flatten(1)


_UNEVEN = torch.tensor((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113), dtype=torch.float32)
FP4 = torch.tensor((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), dtype=torch.float32)
"""Twice the values that four bits can be: a sign, two of an exponent, one of a mantissa (e2m1)."""


def iq4_nl(blocks: Tensor) -> Tensor:
    """Decode x = d·table[q] with 4-bit q, 32 numbers a block."""
    return _UNEVEN[_nibbles(blocks[:, 2:]).int()].mul_(_halves(blocks, 0))


def iq4_xs(blocks: Tensor) -> Tensor:
    """Decode 256 numbers x = (d·(scale − 32))·table[q] in eight groups of 4-bit q with 6-bit scales."""
    low, high = blocks[:, 4:8].unsqueeze(-1), blocks[:, 2:4].unsqueeze(-1)
    low = torch.cat((low & 15, low >> 4), dim=2).flatten(1)
    high = ((high >> torch.tensor((0, 2, 4, 6), dtype=torch.uint8)) & 3).flatten(1)
    scale = (low | high << 4).float().sub_(32).mul_(_halves(blocks, 0)).unsqueeze(-1)
    packed = blocks[:, 8:].reshape(-1, 8, 16)
    return _UNEVEN[_nibbles(packed).int()].mul_(scale).flatten(1)


def half_power(exponent: Tensor) -> Tensor:
    """2^(e − 128) of bytes e: half of what they mean as exponents of microscaling (e8m0)."""
    whole = exponent.int()
    return torch.where(whole < 2, 0x00200000 << whole.clamp(max=1), (whole - 1) << 23).view(torch.float32)


def mxfp4(blocks: Tensor) -> Tensor:
    """Decode x = 2^(e − 128)·(2·q) with 4-bit floats q, 32 numbers a block."""
    return FP4[_nibbles(blocks[:, 1:]).int()].mul_(half_power(blocks[:, :1]))


FORMATS: Mapping[int, Format] = {
    0: Format("F32", 1, 4, f32),
    1: Format("F16", 1, 2, f16),
    2: Format("Q4_0", 32, 18, q4_0),
    3: Format("Q4_1", 32, 20, q4_1),
    6: Format("Q5_0", 32, 22, q5_0),
    7: Format("Q5_1", 32, 24, q5_1),
    8: Format("Q8_0", 32, 34, q8_0),
    10: Format("Q2_K", 256, 84, q2_k),
    11: Format("Q3_K", 256, 110, q3_k),
    12: Format("Q4_K", 256, 144, q4_k),
    13: Format("Q5_K", 256, 176, q5_k),
    14: Format("Q6_K", 256, 210, q6_k),
    20: Format("IQ4_NL", 32, 18, iq4_nl),
    23: Format("IQ4_XS", 256, 136, iq4_xs),
    30: Format("BF16", 1, 2, bf16),
    39: Format("MXFP4", 32, 17, mxfp4),
}
"""The formats that can be read, by their number in the file."""


def _undecoded(blocks: Tensor) -> Tensor:
    raise BadModel("these blocks can be stored and measured here, but not decoded; use the llama.cpp runtime for them.")


UNREADABLE: Mapping[int, Format] = {
    number: Format(name, size, width, _undecoded)
    for number, name, size, width in (
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    )
}
"""Formats that exist but are not decoded here: llama.cpp does, and the error of the native runtime names them."""

CHUNK = 1 << 21
"""Numbers decoded at a time: large enough to be fast, small enough that temporaries stay a few tens of MB."""


def dequantise(blocks: Tensor, form: Format, dtype: torch.dtype = torch.float32) -> Tensor:
    """Decode raw bytes [blocks, form.width] into a flat tensor of blocks·form.size numbers of `dtype`.

    Decoding is exact in float32; any other dtype is one rounding of that.
    """
    count = blocks.shape[0]
    if count * form.size <= CHUNK:
        return form.decode(blocks).reshape(-1).to(dtype)
    out = torch.empty(count * form.size, dtype=dtype)
    step = CHUNK // form.size
    for start in range(0, count, step):
        part = form.decode(blocks[start : start + step]).reshape(-1)
        out[start * form.size : start * form.size + part.numel()] = part
    return out


@dataclass(frozen=True)
class QuantBlocks:
    """A matrix as its file has it, still quantised: raw bytes [rows, bytes of a row] and how they are read."""

    format: Format
    data: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.data.shape[0], self.data.shape[1] // self.format.width * self.format.size

    def rows(self, numbers: Tensor) -> Tensor:
        """Some of its rows in float32."""
        rows = self.data.index_select(0, numbers)  # by brackets, eight rows wake threads that then get in the way
        return dequantise(rows.view(-1, self.format.width), self.format).view(len(numbers), -1)

    def whole(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """All of it."""
        return dequantise(self.data.reshape(-1, self.format.width), self.format, dtype).view(self.shape)
