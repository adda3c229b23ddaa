"""Heads that look ahead, on the packed kernels: guesses of the next few tokens for a fraction of a forward.

PyTorch's products would wake its threads, which then wait where the next forward runs; and all of the output matrix for
every head would take half a forward.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from ...models.quant import FORMATS, QuantBlocks
from ..cache.forward_request import StatesOfRow
from ..engine.contracts import LAST
from ..network.linear import EmbeddingAndHead
from ..network.lookahead_heads import MedusaHeads
from .compiled import HeadsStruct, MatrixStruct, TableStruct, kernels
from .kernel_outputs import KernelStates
from .packed import PackedLinear, table_of

FIRST = 2  # heads that are asked: what drafts of three tokens have a use for
COMMON = 8192  # tokens that are guessed, the first ones: merges are learnt in the order of how often they come
Q8_0 = FORMATS[8]
Guesses: TypeAlias = list[list[tuple[int, float]]]


@dataclass(frozen=True)
class PackedHeads(MedusaHeads):
    """Medusa's heads with matrices in blocks of eight bits; the first `FIRST` of them guess among `COMMON` tokens.

    A guess is drafted and then verified, so what is left out costs acceptance alone.

    Cost: (depth + 1) · heads small products, and one by a part of the output matrix.
    """

    @classmethod
    def load(cls, file: Path, ends: EmbeddingAndHead) -> MedusaHeads:
        """The heads of a file for a network on the packed kernels; those of any other network stay as they are."""
        read = MedusaHeads.load(file, ends)
        packed = isinstance(ends.head, PackedLinear) and table_of(ends.table) is not None and kernels() is not None
        if not packed or ends.norm.shape[0] % Q8_0.size:
            return read
        made = cls(read.matrices, ends)
        made._structs  # noqa: B018 (laid out now, not while somebody's round is timed)
        return made

    @cached_property
    def _first(self) -> tuple[PackedLinear, PackedLinear | None]:
        """The first blocks of all heads side by side, and what they make of a token."""
        blocks, biases, tokens = self.matrices
        read = None if tokens is None else _packed(tokens[:FIRST].flatten(0, 1), None)
        return _packed(blocks[:FIRST, 0].flatten(0, 1), biases[:FIRST, 0].flatten()), read

    @cached_property
    def _rest(self) -> list[list[PackedLinear]]:
        """The other blocks, head by head."""
        blocks, biases, _ = self.matrices
        pairs = zip(blocks[:FIRST, 1:], biases[:FIRST, 1:], strict=True)
        return [[_packed(*each) for each in zip(*pair, strict=True)] for pair in pairs]

    @cached_property
    def _common(self) -> PackedLinear:
        assert isinstance(self.ends.head, PackedLinear)
        return self.ends.head.first(COMMON)

    @cached_property
    def _structs(self) -> tuple[HeadsStruct, TableStruct]:
        """Heads and embeddings for the kernels."""
        table, (first, read) = table_of(self.ends.table), self._first
        assert table is not None  # `load` has looked
        rest = [matrix for blocks in self._rest for matrix in blocks]
        listed = (MatrixStruct * len(rest))(*(matrix.matrices[0] for matrix in rest))
        object.__setattr__(self, "_listed", listed)  # held, since the kernels read it
        at = (*(None if part is None else ctypes.addressof(part.matrices) for part in (first, read)),)
        common, heads, dim = ctypes.addressof(self._common.matrices), len(self._rest), self.ends.norm.shape[0]
        return HeadsStruct(*at, ctypes.addressof(listed), common, heads, len(rest) // heads, dim), table

    def after(self, states: Mapping[int, Tensor], token: int, k: int) -> Guesses:
        """The guesses after a row's states, which are read where a kernel has left them."""
        if isinstance(states, StatesOfRow) and isinstance(states.hidden, KernelStates):
            found = self._guessed(states.hidden.outputs.state_at(states.row), token, k)
            if found is not None:
                return found
        return self.best(states[LAST], token, k)

    def best(self, hidden: Tensor, token: int, k: int) -> Guesses:
        hidden = hidden.float().contiguous()
        found = self._guessed(hidden.data_ptr(), token, k)
        return super().best(hidden, token, k) if found is None else found  # which says what is wrong with it

    def _guessed(self, state: int, token: int, k: int) -> Guesses | None:
        """The guesses after the state at an address; None if the kernel cannot tell."""
        structs, native, heads, k = self._structs, kernels(), len(self._rest), min(k, self._common.out)
        assert native is not None  # `load` has looked
        values, tokens, totals = (
            array("f", bytes(4 * heads * k)),
            array("i", bytes(4 * heads * k)),
            array("d", bytes(8 * heads)),
        )
        done = native.guess(
            *(ctypes.byref(structs[0]), ctypes.byref(structs[1]), state, token, k),
            *(part.buffer_info()[0] for part in (values, tokens, totals)),
            torch.get_num_threads(),
        )
        if done <= 0 or -1 in tokens:
            return None
        return [
            [(tokens[i], math.exp(values[i] - values[k * head]) / totals[head]) for i in range(k * head, k * head + k)]
            for head in range(heads)
        ]


def _packed(matrix: Tensor, bias: Tensor | None) -> PackedLinear:
    native = kernels()
    assert native is not None
    return PackedLinear([in_eight_bits(matrix)], bias, native)


def in_eight_bits(matrix: Tensor) -> QuantBlocks:
    """A matrix in blocks of 32 numbers of eight bits (Q8_0), each with a scale: d = max |x| / 127, q = round(x / d)."""
    blocks = matrix.float().reshape(-1, Q8_0.size)
    scale = (blocks.abs().amax(1, keepdim=True) / 127).half()
    wide = scale.float()
    q = torch.where(wide > 0, blocks / wide, 0.0).round().clamp(-127, 127).to(torch.int8)
    return QuantBlocks(Q8_0, torch.cat((scale.view(torch.uint8), q.view(torch.uint8)), 1).reshape(len(matrix), -1))
