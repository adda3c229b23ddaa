"""Fixed shapes on fused kernels: a token's numbers depend on its text alone, bit for bit, and a step is still a graph.

A product is cut the same way whatever the number of tokens: `rows` of them at a time, filled up with padding. A token
reads its keys in the order of its own text, in shares of a size that never changes, joined in one order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...kernels.attention import attention
from ...kernels.kernel_rows import Rows
from ...kernels.paths import in_order
from ...kernels.tile import MOST_ROWS, rows_for
from ...kernels.tiling import steady
from .fused import Fused

MOST = 512  # tokens whose partial sums are held at a time


class BatchInvariantFused(Fused):
    """The fused kernels, each always cut in the same way."""

    rows: int = MOST_ROWS
    heads_at_once = 4
    placed = True

    def of(self, rows: int) -> BatchInvariantFused:
        """With at least so many tokens to a product, which are then 16, 32 or 64; 64 if 0 is given."""
        self.rows = rows_for(rows or MOST_ROWS)
        return self

    def part(self, layers: Sequence[int]) -> BatchInvariantFused:
        """With as many tokens to a product."""
        return super().part(layers).of(self.rows)

    @torch.no_grad()
    def run(self, tokens: Tensor, rows: Rows, want: Sequence[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """The same, of rows whose tokens each have their keys in order."""
        return super().run(tokens, in_order(rows), want)

    def _attended(self, queries: Tensor, keys: Tensor, values: Tensor, rows: Rows, window: int | None) -> Tensor:
        """What each token gathers, from the same shares in every batch: of many tokens, some rows at a time."""
        shape, each = self.shape, max(1, MOST // rows.tokens)
        tiling = steady(rows.table.shape[1], self.context, shape.heads // shape.kv_heads, shape.head_dim)
        if rows.number <= each:
            return attention(queries, keys, values, rows, shape.query_scale, window, tiling)
        gathered = []
        for at in range(0, rows.number, each):
            some, own = rows.part(at, at + each), queries[at * rows.tokens : (at + each) * rows.tokens]
            gathered.append(attention(own, keys, values, some, shape.query_scale, window, tiling))
        return torch.cat(gathered)
