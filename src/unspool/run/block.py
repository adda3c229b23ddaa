"""Scores that lie in one block of logits: what many of them are asked together costs one launch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..asks import Scores, best_of, paired


@dataclass(frozen=True)
class Block(Scores):
    """Scores of one leaf and its tree, whose logits are the rows of `logits` [1 + nodes, vocab] in this order."""

    logits: Tensor = torch.empty(0)  # noqa: RUF009  (always given)

    def best(self, k: int) -> list[list[tuple[int, float]]]:
        """The k most probable tokens after the leaf and after every node, each with its weight among the k."""
        if not self.logits.is_cuda:
            return best_of(self.logits, k)
        from ..kernel.top import top

        return paired(*top(self.logits, k))
