"""Cache refresh: of places whose keys are old, those that have changed most are computed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

if TYPE_CHECKING:
    from ..network.network import Batch


class CacheRefresh(NamedTuple):
    """Tokens of a batch of which only `most` go on behind the first layer; the others keep what their slots hold."""

    rows: Sequence[int]
    most: int


def staying(renewals: Sequence[CacheRefresh], values: Tensor, old: Tensor) -> list[int]:
    """The tokens that go on: of each renewal those whose values [n, width] are least like the old, by their cosine."""
    alike = F.cosine_similarity(values, old, dim=1)
    gone = set[int]()
    for rows, most in renewals:
        least = alike[torch.tensor(rows, device=alike.device)].argsort()[:most].tolist()
        gone.update(row for number, row in enumerate(rows) if number not in least)
    return [row for row in range(len(values)) if row not in gone]


def narrowed(batch: Batch, stay: Sequence[int]) -> Batch:
    """The batch with these of its tokens alone; the others' keys are seen as they are stored."""
    number = {row: new for new, row in enumerate(stay)}
    rows = []
    for row in batch.rows:
        past = len(row.slots) - row.count
        own = [j for j in range(row.count) if row.first + j in number]
        if own and row.hidden_from is not None:
            keys = [*(k for k in range(len(row.slots)) if k - past not in own), *(past + j for j in own)]
            slots, places = [row.slots[k] for k in keys], [row.places[k] for k in keys]
            first = number[row.first + own[0]]
            rows.append(
                replace(
                    row,
                    first=first,
                    count=len(own),
                    slots=slots,
                    places=places,
                    hidden_from=row.hidden_from[own][:, keys],
                )
            )
    return replace(
        batch,
        tokens=batch.tokens[stay],
        places=batch.places[stay],
        slots=[batch.slots[row] for row in stay],
        rows=rows,
        read=torch.tensor([number[row] for row in batch.read.tolist()]),
        mixed=None,
        renewals=(),
    )
