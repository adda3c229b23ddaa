"""Per-layer embeddings: every layer is told the token again, in a vector of its own (Gemma 3n and 4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from .linear import Gated, Linear, apart, rms


@dataclass(frozen=True)
class PerLayerEmbedding:
    """(norm(project(x)/√dim) + √width·table[token])/√2, [n, layers, width], for tokens that are embedded as x."""

    table: Tensor  # [vocab, layers * width]
    project: Linear
    norm: Tensor  # [width]
    eps: float

    def __call__(self, tokens: Tensor, x: Tensor) -> Tensor:
        width = self.norm.shape[0]
        told = F.embedding(tokens, self.table) * torch.tensor(width**0.5, dtype=self.table.dtype)
        seen = (self.project(x) * x.shape[1] ** -0.5).reshape(len(x), -1, width)
        return (rms(seen, self.norm, self.eps) + told.view_as(seen)) * 2**-0.5


@dataclass(frozen=True)
class LayerEnding:
    """What a layer does last: y = x + norm(out(bend(gate(x))·told)) where it is told its token, and then y·scalar."""

    scalar: Tensor  # [1]
    gate: Linear | None
    out: Linear | None
    norm: Tensor | None
    gated: Gated
    eps: float

    def __call__(self, x: Tensor, told: Tensor | None) -> Tensor:
        if self.gate is not None and self.out is not None and self.norm is not None:
            assert told is not None
            x = x + rms(self.out(self.gated(apart(self.gate(x)), told)), self.norm, self.eps)
        return x * self.scalar
