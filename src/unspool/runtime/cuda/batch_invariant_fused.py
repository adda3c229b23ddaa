"""Fixed shapes on fused kernels: a token's numbers depend on its text alone, bit for bit, and a step is still a graph.

Tensor cores add up the terms of a sum in one order, sixteen at a time, however a product is cut; so each is cut as
suits its number of tokens, but never in a way that adds up otherwise. A token reads its keys in the order of its own
text, in shares of a size that never changes, joined in one order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...kernels.attention import attention
from ...kernels.kernel_rows import Rows
from ...kernels.paths import in_order
from ...kernels.tiling import steady
from .fused import Fused


class BatchInvariantFused(Fused):
    """The fused kernels, each cut so that no sum depends on what else is computed."""

    steady = True
    heads_at_once = 4
    placed = True

    @torch.no_grad()
    def run(self, tokens: Tensor, rows: Rows, want: Sequence[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """The same, of rows whose tokens each have their keys in order."""
        return super().run(tokens, in_order(rows), want)

    def _attended(self, queries: Tensor, keys: Tensor, values: Tensor, rows: Rows, window: int | None) -> Tensor:
        """What each token gathers, from the same shares in every batch."""
        shape = self.shape
        group, tiles = shape.heads // shape.kv_heads, rows.number * rows.tokens * shape.kv_heads
        folds = rows.tokens > 1 and rows.paths is None
        tiling = steady(rows.table.shape[1], self.context, group, shape.head_dim, tiles, folds)
        return attention(queries, keys, values, rows, shape.query_scale, window, tiling)
