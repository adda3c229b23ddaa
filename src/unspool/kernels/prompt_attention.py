"""Attention of a prompt's many tokens, each to its own text: the numbers of `attention`, one program a tile of queries.

Only the last blocks of keys that a tile reads hold some that not all of its queries see. The others are read without
masks; the slots of a block are asked for a block ahead, so that its keys are on their way while others are multiplied.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from .attention_join import merge, take
from .draft_chain import chained, start, wait
from .fit import fitted
from .kernel_rows import Rows
from .tiling import Tiling

ALL = 1 << 30  # blocks of keys: more than any text has


@triton.jit
def _slots(table, slots, index, past, end, step: tl.constexpr):
    """The slots of a block of keys: older ones stand in the table, new ones beside it."""
    key = index * step + tl.arange(0, step)
    slot = tl.load(table + key, mask=key < past, other=0)
    return slot + tl.load(slots + (key - past), mask=(key >= past) & (key < end), other=0)


@triton.jit
def _read(
    own, highest, part, query, keys, values, slot, slot_stride, index, last, scale,
    width: tl.constexpr, padded: tl.constexpr, step: tl.constexpr, steady: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """Take a block of keys into a running softmax; if `masked`, those up to the `last` that each query sees."""
    column = tl.arange(0, padded)
    where = slot.to(tl.int64)[:, None] * slot_stride + column[None, :]
    if width == padded:
        k, v = tl.load(keys + where), tl.load(values + where)
    else:
        k = tl.load(keys + where, mask=(column < width)[None, :], other=0.0)
        v = tl.load(values + where, mask=(column < width)[None, :], other=0.0)
    score = tl.dot(query, tl.trans(k), input_precision="ieee")
    if masked:
        key = index * step + tl.arange(0, step)
        score = tl.where(key[None, :] <= last[:, None], score, float("-inf"))
    return take(own, highest, part, score, v, scale, steady)


@triton.jit
def _prompt(
    queries, keys, values, out, table, past_of, count_of, slots,
    tokens, room, kv_heads, token_stride, head_stride, kv_stride, slot_stride, scale,
    group: tl.constexpr, width: tl.constexpr, padded: tl.constexpr, rows: tl.constexpr, step: tl.constexpr,
    early: tl.constexpr, share: tl.constexpr, steady: tl.constexpr, late: tl.constexpr,
    chained: tl.constexpr,
):  # fmt: skip
    wait(chained)
    row, shared = tl.program_id(0) // kv_heads, tl.program_id(0) % kv_heads
    tile = tl.num_programs(1) - 1 - tl.program_id(1)  # those with the most keys begin first
    past, count = tl.load(past_of + row), tl.load(count_of + row)
    folded = tile * rows + tl.arange(0, rows)
    token, head = folded // group, shared * group + folded % group
    first, final = tile * rows // group, tl.minimum((tile * rows + rows - 1) // group, count - 1)
    end = past + final + 1
    high = tl.where(first < count, tl.cdiv(end, step), 0)
    plain = tl.minimum((past + first + 1) // step, high)
    last = tl.where(token < count, past + token, -1)

    column = tl.arange(0, padded)
    inside = (token < tokens)[:, None] & (column < width)[None, :]
    at_query = (row * tokens + token).to(tl.int64)[:, None] * token_stride + head[:, None] * head_stride
    query = tl.load(queries + at_query + column[None, :], mask=inside, other=0.0)
    keys += shared.to(tl.int64) * kv_stride
    values += shared.to(tl.int64) * kv_stride
    table += row.to(tl.int64) * room
    slots += row * tokens
    none, lowest = tl.zeros([rows], tl.float32), tl.full([rows], float("-inf"), tl.float32)
    nothing = tl.zeros([rows, padded], tl.float32)
    total, top, gathered = none, lowest, nothing
    slot = _slots(table, slots, 0, past, end, step)
    for index in tl.range(0, tl.minimum(plain, early), num_stages=late):  # each block is a share of its own
        own, highest, part = _read(
            none, lowest, nothing, query, keys, values, slot, slot_stride, index, last, scale,
            width, padded, step, steady, False,
        )  # fmt: skip
        total, top, gathered = merge(total, top, gathered, own, highest, part)
        slot = _slots(table, slots, index + 1, past, end, step)
    own, highest, part = none, lowest, nothing
    for index in tl.range(early, plain, num_stages=late):
        own, highest, part = _read(
            own, highest, part, query, keys, values, slot, slot_stride, index, last, scale,
            width, padded, step, steady, False,
        )  # fmt: skip
        if (index + 1 - early) % share == 0:
            total, top, gathered = merge(total, top, gathered, own, highest, part)
            own, highest, part = none, lowest, nothing
        slot = _slots(table, slots, index + 1, past, end, step)
    for index in tl.range(plain, high, num_stages=1):  # a pipeline here takes registers from the loops before
        own, highest, part = _read(
            own, highest, part, query, keys, values, slot, slot_stride, index, last, scale,
            width, padded, step, steady, True,
        )  # fmt: skip
        if (index < early) | ((index + 1 - early) % share == 0) | (index + 1 == high):
            total, top, gathered = merge(total, top, gathered, own, highest, part)
            own, highest, part = none, lowest, nothing
        slot = _slots(table, slots, index + 1, past, end, step)
    start(chained)
    result = gathered / tl.where(total == 0.0, 1.0, total)[:, None]
    result = tl.where((token < count)[:, None], result, 0.0)
    found = (row * tokens + token).to(tl.int64) * (kv_heads * group) + head
    tl.store(out + found[:, None] * width + column[None, :], result.to(out.dtype.element_ty), mask=inside)


def prompt_attention(queries: Tensor, keys: Tensor, values: Tensor, rows: Rows, scale: float, cut: Tiling) -> Tensor:
    """`attention` of tokens that see their text up to themselves, by a tiling that joins: `small` is 1.

    Cost: each key and value once per tile of queries; one launch.
    """
    n, heads, width = queries.shape
    kv_heads, number, tokens = keys.shape[0], rows.number, rows.tokens
    group, chain = heads // kv_heads, chained()
    out = torch.empty(n, heads * width, dtype=queries.dtype, device=queries.device)
    fitted(
        lambda stages: _prompt[(number * kv_heads, triton.cdiv(tokens * group, cut.heads))](
            queries, keys, values, out, rows.table, rows.past, rows.count, rows.slots,
            tokens, rows.table.shape[1], kv_heads, queries.stride(0), queries.stride(1), keys.stride(0), keys.stride(1),
            scale * math.log2(math.e), group=group, width=width, padded=max(16, triton.next_power_of_2(width)),
            rows=cut.heads, step=cut.keys, early=cut.early, share=cut.share // cut.keys or ALL, steady=cut.share > 0,
            late=stages,
            num_warps=cut.warps, num_stages=stages, enable_fp_fusion=False, chained=chain, launch_pdl=chain,
        ),
        cut.stages,
        ("prompt", cut, width, queries.dtype),
    )  # fmt: skip
    return out
