"""The best continuations of several texts at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.law import NEVER, Law


class Candidate(NamedTuple):
    """Token `token` after text `row`, worth `value`."""

    row: int
    token: int
    value: float


def values(laws: Sequence[Law], base: Sequence[float]) -> Tensor:
    """base + log p for every text and token, [texts, vocab]; a text after which no token may follow has none."""
    rows = []
    for law, start in zip(laws, base, strict=True):
        scores = law.scores.double()
        rows.append(scores if law.is_empty() else scores + (start - law.log_z))
    return torch.stack(rows)


def leading(worth: Tensor, count: int) -> list[Candidate]:
    """The `count` best, best first; of equals the earlier text, then the lower token, so that one text is greedy's."""
    flat = worth.flatten()
    least = flat.topk(min(count, flat.numel())).values[-1]
    # topk breaks ties as it likes: take all that are as good as the last, then sort those
    at = ((flat >= least) & (flat > NEVER)).nonzero().flatten()
    best, order = flat[at].sort(descending=True, stable=True)
    where: list[int] = at[order[:count]].tolist()
    size = worth.shape[1]
    return [Candidate(i // size, i % size, value) for i, value in zip(where, best[:count].tolist(), strict=True)]
