"""Hidden Transfer (arXiv 2404.12022): from a layer on masks hold what a matrix makes of a token's state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.canvas import HOLE
from ..cache.kv_pool import KVPool
from .network import Batch


class Handed(NamedTuple):
    """The tokens of a batch that take on states at one layer, and the slots of the tokens whose states these are."""

    rows: list[int]
    slots: list[int]


class HiddenTransfer:
    """What the masks behind a token are handed: the i-th at layer layers[i] W_i · h + b_i, h entering it at the token.

    Masks hang below each other as drafted tokens do, so that the i-th of them is the i-th below a token that is none.
    Below its layer a mask computes what nobody reads: the masks behind it, which alone see it, are handed their states
    no earlier. The state of a token is in its slot, whether it was computed in this forward or before.
    Claim: none is needed; nobody else sees a mask. Cost: a product of width² for each mask.
    """

    def __init__(self, layers: Sequence[int], weights: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
        self.layers, self.weights, self.biases = tuple(layers), list(weights), list(biases)

    def plan(self, batch: Batch) -> list[Handed]:
        """Which masks of a batch are handed what, by their number; masks further than there are matrices are not."""
        found = [Handed([], []) for _ in self.layers]
        tokens = batch.tokens.tolist()
        for row in batch.rows:
            above = dict[int, tuple[int, int]]()  # of masks by their slots: their number, and the slot of their token
            own = batch.slots[row.first : row.first + row.count]
            for j, (slot, before) in enumerate(zip(own, row.behind, strict=False)):
                if tokens[row.first + j] != HOLE:
                    continue
                number, anchor = above.get(before, (-1, before))
                above[slot] = number + 1, anchor
                if number + 1 < len(found) and anchor >= 0:
                    found[number + 1].rows.append(row.first + j)
                    found[number + 1].slots.append(anchor)
        return found

    def hand(self, index: int, x: Tensor, plan: Sequence[Handed], pool: KVPool) -> Tensor:
        """What enters a layer [n, width], with the states that masks are handed there."""
        for number, (rows, slots) in enumerate(plan):
            if self.layers[number] == index and rows:
                states = pool.noted_at(index, slots)
                x = x.index_copy(
                    0,
                    torch.tensor(rows, device=x.device),
                    torch.nn.functional.linear(states, self.weights[number], self.biases[number]),
                )
        return x
