"""Heads that look ahead, on the packed kernels: guesses of the next few tokens for a fraction of a forward.

PyTorch's products would wake its threads, which then wait where the next forward runs; and all of the output matrix for
every head would take half a forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...models.quant import FORMATS, QuantBlocks
from ..network.linear import EmbeddingAndHead
from ..network.lookahead_heads import MedusaHeads
from .best_tokens import likeliest
from .compiled import kernels
from .packed import PackedLinear

FIRST = 2  # heads that are asked: what drafts of three tokens have a use for
COMMON = 16384  # tokens that are guessed, the first ones: merges are learnt in the order of how often they come
Q8_0 = FORMATS[8]


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
        if not isinstance(ends.head, PackedLinear) or kernels() is None or ends.norm.shape[0] % Q8_0.size:
            return read
        made = cls(read.matrices, ends)
        made._first, made._rest, made._common  # noqa: B018 (laid out now, not while somebody's round is timed)
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

    @torch.no_grad()
    def best(self, hidden: Tensor, token: int, k: int) -> list[list[tuple[int, float]]]:
        state, (first, read) = hidden.float()[None], self._first
        bent = first(state)
        if read is not None:
            word = self.ends.embed(torch.tensor([token]))
            bent = bent + read(F.rms_norm(word, word.shape[-1:], None, 1e-6))
        x = state + F.silu(bent.view(-1, state.shape[1]))
        for head, blocks in enumerate(self._rest):
            for block in blocks:
                x[head] += F.silu(block(x[head : head + 1]))[0]
        found = likeliest(self._common(x), k)
        return super().best(hidden, token, k) if found is None else found


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
