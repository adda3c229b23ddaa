"""Fixed shapes on fused kernels: a token's numbers depend on its text alone, bit for bit, and a step is still a graph.

Tensor cores add up the terms of a sum in one order, sixteen at a time, however a product is cut; so each is cut as
suits its number of tokens, but never in a way that adds up otherwise. A token reads its keys in the order of its own
text, in shares of a size that never changes, joined in one order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...kernels.kernel_rows import Rows
from ...kernels.linear import linear
from ...kernels.paths import in_order
from ...kernels.tiling import Tiling, steady
from ..network.linear import DenseLinear
from .fused import Fused


class SteadyLinear(DenseLinear):
    """A matrix whose product gives a token the same bits in whatever number of them."""

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x.contiguous(), self.weight, self.bias, steady=True)


class BatchInvariantFused(Fused):
    """The fused kernels, each cut so that no sum depends on what else is computed."""

    steady = True
    matrix = SteadyLinear
    heads_at_once = 4
    placed = True

    @torch.no_grad()
    def run(self, tokens: Tensor, rows: Rows, want: Sequence[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """The same, of rows whose tokens each have their keys in order."""
        return super().run(tokens, in_order(rows), want)

    def _tiling(self, group: int, keys: Tensor, rows: Rows) -> Tiling:
        """The same shares in every batch."""
        tiles = rows.number * rows.tokens * keys.shape[0]
        folds = rows.tokens > 1 and rows.paths is None
        return steady(rows.table.shape[1], self.context, group, keys.shape[2], tiles, rows.tokens, folds)
