"""Every token of a tree with its keys in the order of its own text, whatever was drafted beside it."""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .kernel_rows import Rows, Visibility


@triton.jit
def _paths(
    table, past_of, clear_of, slots, sees, key_places, paths, tokens, room,
    words: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    token = tl.program_id(0)
    row = token // tokens
    past, clear = tl.load(past_of + row), tl.load(clear_of + row)
    bit = tl.arange(0, block)
    word = tl.load(sees + token * words + (bit >> 5), mask=bit < 32 * words, other=0)
    seen = ((word >> (bit & 31)) & 1) == 1
    older = clear + bit < past
    slot = tl.load(table + row.to(tl.int64) * room + clear + bit, mask=seen & older, other=0)
    slot += tl.load(slots + row * tokens + clear + bit - past, mask=seen & (clear + bit >= past), other=0)
    place = tl.load(key_places + row * (32 * words) + bit, mask=seen, other=0)
    tl.store(paths + token * (32 * words) + place - clear, slot, mask=seen)


def in_order(rows: Rows) -> Rows:
    """The same rows with `paths`, where their keys are in no such order: in trees. Cost: one launch for those."""
    number, tokens = rows.number, rows.tokens
    if rows.sight == Visibility.CAUSAL:
        return rows
    assert rows.sees is not None
    words = rows.sees.shape[1]
    paths = torch.empty(number, tokens, 32 * words, dtype=torch.int32, device=rows.slots.device)
    chain = chained()
    _paths[(number * tokens,)](
        rows.table, rows.past, rows.clear, rows.slots, rows.sees, rows.key_places, paths, tokens, rows.table.shape[1],
        words=words, block=triton.next_power_of_2(32 * words), num_warps=1, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return replace(rows, paths=paths)


def reference(rows: Rows) -> list[list[Tensor]]:
    """The slots of what every real token sees from `clear` on, by place."""
    found = []
    for row in range(rows.number):
        slots, seen = rows.seen(row, None)
        if rows.sight == Visibility.CAUSAL:
            clear, places = int(rows.past[row]), torch.arange(len(slots), device=slots.device)[int(rows.past[row]) :]
        else:
            assert rows.clear is not None
            assert rows.key_places is not None
            clear = int(rows.clear[row])
            places = rows.key_places[row, : len(slots) - clear]
        slots, seen = slots[clear:], seen[:, clear:]
        found.append([slots[one][places[one].argsort()] for one in seen])
    return found
