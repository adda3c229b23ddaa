"""Scores that lie in one block of logits: what many of them are asked together costs one launch, or none."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.asks import Scores, best_of, unpacked


@dataclass(frozen=True)
class LogitsBlock(Scores):
    """Scores of one leaf and its tree, whose logits are the rows of `logits` [1 + nodes, vocab] in this order.

    `ready` [1 + nodes, 2k], where a device has made them by the way, are the weights of each row's k best tokens among
    these, and then the tokens.
    """

    logits: Tensor = torch.empty(0)  # noqa: RUF009  (always given)
    ready: Tensor | None = None

    def best(self, k: int) -> list[list[tuple[int, float]]]:
        """The k most probable tokens after the leaf and after every node, each with its weight among the k."""
        if self.ready is not None and self.ready.shape[1] == 2 * k:
            return unpacked(self.ready.tolist())
        return best_of(self.logits, k)
