"""Rounding of matrices to few bits: groups of 32 neighbours in a row share a scale, as in GGUF's blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .quant import FORMATS, GROUP, SHARED, QuantBlocks

_Q4_1, _Q8_0 = 3, 8
_AT_ONCE = 1 << 17  # numbers, so that what is made of them on the way stays in the processor's cache


def four_bits(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers q in 0…15 [out, groups, 32] with w ≈ least + scale·q, and every group's scale and least [out, groups]."""
    rows, depth = weight.shape
    groups = weight.float().view(rows, depth // GROUP, GROUP)
    least = groups.amin(2).to(SHARED)
    scale = ((groups.amax(2) - least.float()) / 15).to(SHARED)
    step = torch.where(scale > 0, scale.float(), 1.0)[:, :, None]
    return ((groups - least.float()[:, :, None]) / step).round().clamp(0, 15).to(torch.uint8), scale, least


def to_q4_1(weight: Tensor) -> QuantBlocks:
    """The matrix [out, in] in blocks of x = scale·q + least."""

    def rounded(rows: Tensor) -> tuple[Tensor, ...]:
        q, scale, least = four_bits(rows)
        return scale, least, q[..., : GROUP // 2] | q[..., GROUP // 2 :] << 4

    return _blocks(_Q4_1, weight, rounded)


def to_q8_0(weight: Tensor) -> QuantBlocks:
    """The matrix [out, in] in blocks of x = scale·q with q in −127…127."""

    def rounded(rows: Tensor) -> tuple[Tensor, ...]:
        groups = rows.float().view(len(rows), -1, GROUP)
        scale = (groups.abs().amax(2) / 127).to(SHARED)
        step = torch.where(scale > 0, scale.float(), 1.0)[:, :, None]
        return scale, (groups / step).round().clamp(-127, 127).to(torch.int8)

    return _blocks(_Q8_0, weight, rounded)


def _blocks(number: int, weight: Tensor, rounded: Callable[[Tensor], tuple[Tensor, ...]]) -> QuantBlocks:
    """The parts of every group as bytes, one behind the other."""
    form, (rows, depth) = FORMATS[number], weight.shape
    count = depth // GROUP
    data = torch.empty(rows, count, form.width, dtype=torch.uint8)
    step = max(1, _AT_ONCE // max(1, depth))
    for start in range(0, rows, step):
        parts = rounded(weight[start : start + step])
        raw = [part.contiguous().view(torch.uint8).view(len(part), count, -1) for part in parts]
        data[start : start + step] = torch.cat(raw, 2)
    return QuantBlocks(form, data.view(rows, -1))


ROUND: Mapping[str, Callable[[Tensor], QuantBlocks]] = {"int8": to_q8_0, "int4": to_q4_1}
"""How the matrices of layers are rounded, by the name of the quantization."""
