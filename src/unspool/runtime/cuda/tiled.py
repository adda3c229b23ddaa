"""Matrices of few bits in tiles: their products, and how those that a file has in few bits are laid out so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ...core.errors import BadRequest
from ...kernels.fewbits import product
from ...models.codes import FloatCodes, GroupedCodes
from ...models.quant import GROUP, SHARED
from ...models.weights import Checkpoint
from ..network.linear import Linear
from ..network.quantised import PARTS, TILE, Int4Linear, TiledFloat8Linear, TiledInt8Linear
from .stacked_experts import StackingLoader

TILED = (Int4Linear, TiledInt8Linear, TiledFloat8Linear)
MIDDLE = 128  # the zero of codes of 8 bits that the kernels know


@runtime_checkable
class HasCodes(Protocol):
    """A checkpoint whose matrices may be read as the codes that the file has."""

    def codes(self, name: str) -> GroupedCodes | FloatCodes | None:
        """Return those of a matrix."""


def times(
    matrix: Int4Linear | TiledInt8Linear | TiledFloat8Linear,
    x: Tensor,
    residual: Tensor | None,
    activation: str | None,
) -> Tensor:
    """The product of a matrix with few tokens, in 16 bits, and what stands around it."""
    width = matrix.size[0] // 2 if activation else matrix.size[0]
    scale = None if isinstance(matrix, Int4Linear) else matrix.scale
    zeros, floats = isinstance(matrix, Int4Linear) and matrix.zeros, isinstance(matrix, TiledFloat8Linear)
    return product(
        x, matrix.weight, scale, matrix.bias, width=width, residual=residual, activation=activation, zeros=zeros,
        floats=floats,
    )  # fmt: skip


def laid_out(parts: Sequence[GroupedCodes | FloatCodes], bias: Tensor | None, device: torch.device) -> Linear | None:
    """Matrices on top of each other as one in tiles, without loss; None if the kernels do not know their like."""
    floats = [part for part in parts if isinstance(part, FloatCodes)]
    numbers = [part for part in parts if isinstance(part, GroupedCodes)]
    if floats and numbers:
        return None
    return _floats_laid_out(floats, bias, device) if floats else _numbers_laid_out(numbers, bias, device)


def _floats_laid_out(parts: Sequence[FloatCodes], bias: Tensor | None, device: torch.device) -> Linear | None:
    wide, columns = parts[0].wide, parts[0].codes.shape[1]
    if any(part.codes.dtype != torch.float8_e4m3fn or part.wide != wide for part in parts):
        return None
    q = torch.cat([part.codes.view(torch.int8).to(device) for part in parts])
    scale = torch.cat([part.scale.float().to(device) for part in parts])
    if columns % GROUP or bool(((q & 127) == 127).any()):  # which is no number
        return None
    if wide >= columns:
        return TiledFloat8Linear.stored(q, scale.flatten(), bias)
    piece = PARTS * GROUP
    tiles = torch.cat((scale, scale[-1:].expand(-len(scale) % TILE, -1))).view(-1, TILE, scale.shape[1])
    if wide % piece or not torch.equal(tiles, tiles[:, :1].expand_as(tiles)):
        return None
    each = tiles[:, 0].repeat_interleave(wide // piece, 1)[:, : -(-columns // piece)]
    return TiledFloat8Linear.stored(q, each.contiguous(), bias)


def _numbers_laid_out(parts: Sequence[GroupedCodes], bias: Tensor | None, device: torch.device) -> Linear | None:
    one = parts[0]
    columns = one.codes.shape[1]
    if any((part.bits, part.group, part.leasts) != (one.bits, one.group, one.leasts) for part in parts):
        return None
    codes, scale, other = (
        torch.cat([part.to(device) for part in each])
        for each in zip(*((part.codes, part.scale, part.other) for part in parts), strict=True)
    )
    if one.bits == 8:
        known = one.group == columns and columns % GROUP == 0 and not one.leasts and bool((other == MIDDLE).all())
        if not known:
            return None
        return TiledInt8Linear.stored((codes - MIDDLE).to(torch.int8), scale.float().flatten(), bias)
    if one.bits != 4 or one.group % GROUP or columns % one.group:
        return None
    shared = [part if one.leasts or part is scale else -part for part in (scale, other)]
    short, least = (part.to(SHARED).repeat_interleave(one.group // GROUP, 1) for part in shared)
    if any(not torch.equal(part.to(SHARED).float(), part.float()) for part in shared):
        return None
    return Int4Linear.stored(codes.to(torch.uint8).view(len(codes), -1, GROUP), short, least, bias, not one.leasts)


class TiledLoader(StackingLoader):
    """Leaves matrices in the few bits that the file has them in, where the kernels know their like."""

    def matrix(self, names: Sequence[str], has_bias: bool) -> Linear:
        if isinstance(self.checkpoint, HasCodes):
            found = [self.checkpoint.codes(f"{name}.weight") for name in names]
            parts = [part for part in found if part is not None]
            if len(parts) == len(names):
                bias = self._stacked([f"{name}.bias" for name in names]) if has_bias else None
                made = laid_out(parts, bias, self.device)
                if made is not None:
                    return made
        return super().matrix(names, has_bias)


def check_packed(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint of which no matrix can stay as the file has it."""
    sizes = checkpoint.shape.tensors()
    inner = [name for name, size in sizes.items() if len(size) == 2 and name.startswith("model.layers.")]
    if not isinstance(checkpoint, HasCodes) or not any(checkpoint.codes(name) is not None for name in inner[:1]):
        raise BadRequest(
            "quantization='packed' on a GPU keeps weights of 4 and 8 bits that the kernels know (AWQ, GPTQ without an "
            "order, pack-quantised, FP8, Q4_0, Q4_1), and this model has none; use int8 or int4 to round it, or none."
        )
