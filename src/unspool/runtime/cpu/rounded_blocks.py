"""Weights of any model rounded to blocks of 8 or 4 bits while they are loaded, for the kernels of packed weights.

The head and the table of embeddings take 8 bits: each of their rows is read alone, or decides alone.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from ...models.quant import GROUP
from ...models.rounding import ROUND, to_q8_0
from ...models.shape import Shape
from ...models.weights import Checkpoint
from ..network.attention import Planner
from ..network.layer import Loader
from ..network.linear import EmbeddingAndHead, Linear, MakeLinear, dense
from ..network.llama import Llama
from .compiled import Kernels, kernels
from .packed import HugePages, PackedLinear
from .packed_llama import PackedLlama, unpacked

_WIDTHS = {"int8": 34 / GROUP, "int4": 20 / GROUP}  # bytes of a weight, with its share of what its group shares


class BlocksLinear:
    """Makes matrices in blocks, one behind the other in memory; those whose rows are no whole groups stay whole."""

    def __init__(self, kind: str, vocab: int, native: Kernels, rest: MakeLinear = dense) -> None:
        self._round, self._vocab, self._rest = ROUND[kind], vocab, rest
        self._native, self._memory = native, HugePages()

    def __call__(self, weight: Tensor, bias: Tensor | None) -> Linear:
        rows, depth = weight.shape
        if depth % GROUP:
            return self._rest(weight, bias)
        rounded = to_q8_0 if rows == self._vocab else self._round
        return PackedLinear([rounded(weight)], bias, self._native, self._memory)


class BlocksLoader(Loader):
    """Reads a model whose table of embeddings is kept in blocks too."""

    def ends(self) -> EmbeddingAndHead:
        """Embedding and head, the same numbers where they are tied."""
        shape = self.checkpoint.shape
        table = self.tensor("model.embed_tokens.weight")
        head = self.linear(table if shape.tied else self.tensor("lm_head.weight"), None)
        return EmbeddingAndHead(to_q8_0(table), self.scale(), self.norm("model.norm"), head)


def load_rounded(
    checkpoint: Checkpoint, room: int | None, kind: str, rest: MakeLinear = dense, planner: type[Planner] = Planner
) -> Llama:
    """The model rounded: on the kernels alone if they can run it, else PyTorch does all but the products.

    `rest` makes the matrices that are not rounded.
    """
    native = kernels()
    assert native is not None
    make = BlocksLinear(kind, checkpoint.shape.vocab, native, rest)
    if unpacked(checkpoint.shape) is None and _fills_groups(checkpoint.shape):
        return PackedLlama.load(checkpoint, room=room, linear=make, loader=BlocksLoader)
    return Llama.load(checkpoint, room=room, linear=make, planner=planner, router=rest)


def rounded_bytes(shape: Shape, kind: str) -> tuple[int, int]:
    """What all weights take when they are rounded so, and the table of embeddings of that."""
    sizes = shape.tensors()
    table = "model.embed_tokens.weight"
    held = {name: _bytes(name, size, shape.vocab, kind) for name, size in sizes.items()}
    tied = held[table] if shape.tied else 0  # the head has a copy of its own
    return sum(held.values()) + tied, held[table]


def described_rounding(checkpoint: Checkpoint, kind: str) -> str:
    """The weights that are rounded, in a line."""
    native, (size, _) = kernels(), rounded_bytes(checkpoint.shape, kind)
    assert native is not None
    return f"weights rounded to {kind}, {GROUP} with one scale, {size / 1e6:,.0f} MB, {native.level} kernels"


def _bytes(name: str, size: tuple[int, ...], vocab: int, kind: str) -> int:
    if len(size) != 2 or size[1] % GROUP or ".mlp.gate." in name:
        return prod(size) * torch.float32.itemsize
    return int(prod(size) * _WIDTHS["int8" if size[0] == vocab else kind])


def _fills_groups(shape: Shape) -> bool:
    return all(len(size) != 2 or size[1] % GROUP == 0 for size in shape.tensors().values())
