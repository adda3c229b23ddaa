"""Checkpoints of recurrent layers as the rows of a bucket have them: what each token goes on from, and what it leaves.

Trees and chunks of prompts are told token by token. A row that writes on is told one number for each of its turns. A
row that speculates has a number for every node, one that its root goes on from, and one to spare: what stands becomes
the next round's start, and gives its place to the spare one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .packing import Kind, Packed, Size, filled
from .staging_buffer import StagingBuffer

Fields = dict[str, tuple[torch.dtype, tuple[int, ...]]]


def state_fields(size: Size, turns: int) -> Fields:
    """The arrays that say so for a bucket of this size, of so many turns where it writes on."""
    whole, rows, n = torch.int32, size.rows, size.rows * size.tokens
    if size.kind is Kind.WRITE:
        return {"marks": (whole, (rows, turns + 1))}
    if size.kind is Kind.SPECULATE:
        return {"into": (whole, (n,)), **dict.fromkeys(("start", "spare"), (whole, (rows,)))}
    return dict.fromkeys(("before", "into"), (whole, (n,)))


def put_states(staging: StagingBuffer, rows: Sequence[Packed], tokens: int) -> None:
    """Write those of packed rows, whose tokens stand `tokens` apart in the batch."""
    before = [
        above + i * tokens if above >= 0 else above
        for i, row in enumerate(rows)
        for above in filled(row.before, tokens, -1)
    ]
    staging.put("before", before, -1)
    staging.put("into", [number for row in rows for number in filled(row.into, tokens, -1)], -1)


def put_marks(staging: StagingBuffer, marks: Sequence[Sequence[int]], turns: int) -> None:
    """Write those of rows that write on: the number each starts from, and one for each turn, the last for the rest."""
    staging.put("marks", [number for own in marks for number in filled(own, turns + 1, own[-1])])


def followed(size: Size, on: dict[str, Tensor], trash: int) -> tuple[Tensor, Tensor]:
    """What every token of a batch goes on from and leaves, as `kernels.carried_state` has it."""
    if size.kind is Kind.WRITE:  # a row that has written all it wants leaves nothing more
        turn = on["turn"].long()
        start, end = (on["marks"].index_select(1, turn + more)[:, 0] for more in (0, 1))
        return ~start, torch.where(on["slots"] == trash, -1, end)
    if size.kind is Kind.SPECULATE:
        parents = on["parents"].view(-1, size.tokens)
        first = torch.arange(0, parents.numel(), size.tokens, dtype=torch.int32, device=parents.device)[:, None]
        return torch.where(parents >= 0, parents + first, ~on["start"][:, None]).view(-1), on["into"]
    return on["before"], on["into"]


def settle_states(on: dict[str, Tensor], last: Tensor) -> None:
    """Begin the next round of rows that speculate: node last[r] of row r is the last that stands."""
    into = on["into"].view(len(last), -1)
    live, at = on["count"] > 0, last.long()[:, None]
    stands = into.gather(1, at)
    into.scatter_(1, at, torch.where(live[:, None], on["spare"][:, None], stands))
    for name in ("start", "spare"):
        on[name].copy_(torch.where(live, stands[:, 0], on[name]))
