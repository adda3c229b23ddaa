"""Attention of single tokens and of trees whose keys are in order: what all tokens of a row see is read once for all.

Shares of keys have a fixed size, so those that end before the tree are the same for all of its tokens: programs with
many queries each take them. What is left, a token's own line, is read by a program of its own, while those still run;
then it joins all shares in order. The bits are those of `attention` of each token alone.
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

PROGRAMS = 1056  # with shared keys, as many as keep the chip at work: those that find no share left are not free either
FEW_QUERIES, SMALL, LARGE = 48, (16, 2), (64, 4)  # of a row, up to which programs are small; queries and warps of each
REST_WARPS, STAGES = 4, 2
AT_ONCE = 8  # shares whose reads do not wait for each other
"""As measured on an H200 (bench/attention_rounds.py)."""


@triton.jit
def _before(clear, step: tl.constexpr, early: tl.constexpr, size: tl.constexpr):
    """How many shares have only keys before `clear`: the first ones are of one block, later ones of `size`."""
    blocks = clear // step
    return tl.minimum(blocks, early) + tl.maximum(blocks - early, 0) // size


@triton.jit
def _block(query, keys, values, slot, exists, column, slot_stride, width: tl.constexpr, whole: tl.constexpr):
    """Scores and values of a block of keys, which are read where they exist; of a `whole` block all do."""
    where = slot.to(tl.int64)[:, None] * slot_stride + column[None, :]
    if whole and width == query.shape[1]:
        k, v = tl.load(keys + where), tl.load(values + where)
    else:
        inside = exists[:, None] & (column < width)[None, :]
        k = tl.load(keys + where, mask=inside, other=0.0)
        v = tl.load(values + where, mask=inside, other=0.0)
    return tl.dot(query, tl.trans(k), input_precision="ieee"), v


@triton.jit
def _number(i, first, many, small, later, early: tl.constexpr, size: tl.constexpr):
    """Of the i-th block that a program takes, the share, and its own number."""
    j = i - small
    share = tl.where(j < 0, first + i * many, later + j // size * many)
    return share, tl.where(j < 0, share, early + (share - early) * size + j % size)


@triton.jit
def _keep(parts, stats, found, own, highest, part, real, column, width: tl.constexpr):
    """Write a share down, to be joined."""
    tl.store(stats + 2 * found, highest, mask=real)
    tl.store(stats + 2 * found + 1, own, mask=real)
    inside = real[:, None] & (column < width)[None, :]
    tl.store(parts + found[:, None] * width + column[None, :], part, mask=inside)


@triton.jit
def _prefix(
    queries, keys, values, parts, stats, table, clear_of, count_of,
    tokens, room, kv_heads, splits, token_stride, head_stride, kv_stride, slot_stride, scale,
    group: tl.constexpr, width: tl.constexpr, padded: tl.constexpr, rows: tl.constexpr, step: tl.constexpr,
    early: tl.constexpr, size: tl.constexpr, late: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Every so many-th of the shares that all tokens of a row see, for some of its queries."""
    wait(chained)
    start(chained)  # what follows reads other keys before it waits for these, which by now are all there
    tiles, many = tl.cdiv(tokens * group, rows), tl.num_programs(2)
    row, tile, shared, first = tl.program_id(0) // tiles, tl.program_id(0) % tiles, tl.program_id(1), tl.program_id(2)
    clear, count = tl.load(clear_of + row), tl.load(count_of + row)
    folded, column = tile * rows + tl.arange(0, rows), tl.arange(0, padded)
    token, member = folded // group, folded % group
    real = token < count
    number = (row * tokens + token).to(tl.int64)
    at_query = number[:, None] * token_stride + (shared * group + member)[:, None] * head_stride
    inside = real[:, None] & (column < width)[None, :]
    query = tl.load(queries + at_query + column[None, :], mask=inside, other=0.0)
    keys += shared.to(tl.int64) * kv_stride
    values += shared.to(tl.int64) * kv_stride
    table += row.to(tl.int64) * room
    found = (number * kv_heads + shared) * splits * group + member

    before = tl.where(tile * rows // group < count, _before(clear, step, early, size), 0)
    small = tl.cdiv(tl.maximum(tl.minimum(before, early) - first, 0), many)
    later = early + (first + (many - 1) * early) % many  # the first share of this program among the large ones
    large = tl.cdiv(tl.maximum(before - later, 0), many)
    none, lowest = tl.zeros([rows], tl.float32), tl.full([rows], float("-inf"), tl.float32)
    nothing = tl.zeros([rows, padded], tl.float32)
    own, highest, part = none, lowest, nothing
    high, lane = small + large * size, tl.arange(0, step)
    share, index = _number(0, first, many, small, later, early, size)
    slot = tl.load(table + index * step + lane, mask=high + lane * 0 > 0, other=0)
    for i in tl.range(0, high, num_stages=late):
        score, v = _block(query, keys, values, slot, slot >= 0, column, slot_stride, width, True)
        own, highest, part = take(own, highest, part, score, v, scale, True)
        if (i < small) | ((i - small) % size == size - 1):
            _keep(parts, stats, found + share * group, own, highest, part, real, column, width)
            own, highest, part = none, lowest, nothing
        # A block ahead, so that its keys are on their way while others are multiplied.
        share, index = _number(i + 1, first, many, small, later, early, size)
        slot = tl.load(table + index * step + lane, mask=i + 1 + lane * 0 < high, other=0)


@triton.jit
def _rest(
    queries, keys, values, out, parts, stats, table, clear_of, count_of, places, paths,
    tokens, room, splits, token_stride, head_stride, kv_stride, slot_stride, row_path, token_path, scale,
    group: tl.constexpr, width: tl.constexpr, padded: tl.constexpr, lines: tl.constexpr, step: tl.constexpr,
    early: tl.constexpr, size: tl.constexpr, late: tl.constexpr, listed: tl.constexpr, at_once: tl.constexpr,
    chained: tl.constexpr,
):  # fmt: skip
    """A token's shares from where its own keys begin, and then all of its shares as one.

    It does not wait at first: `_prefix` lets it start when all that came before is there.
    """
    row, token, shared = tl.program_id(0) // tokens, tl.program_id(0) % tokens, tl.program_id(1)
    clear, count = tl.load(clear_of + row), tl.load(count_of + row)
    end = clear + 1
    if listed:
        end = tl.load(places + tl.program_id(0)) + 1
    end = tl.where(token < count, end, 0)
    member, column = tl.arange(0, lines), tl.arange(0, padded)
    real = member < group
    inside = real[:, None] & (column < width)[None, :]
    at_query = tl.program_id(0).to(tl.int64) * token_stride + (shared * group + member)[:, None] * head_stride
    query = tl.load(queries + at_query + column[None, :], mask=inside, other=0.0)
    keys += shared.to(tl.int64) * kv_stride
    values += shared.to(tl.int64) * kv_stride
    table += row.to(tl.int64) * room
    paths += row * row_path + token * token_path
    found = (tl.program_id(0) * tl.num_programs(1) + shared).to(tl.int64) * splits * group + member

    none, lowest = tl.zeros([lines], tl.float32), tl.full([lines], float("-inf"), tl.float32)
    nothing = tl.zeros([lines, padded], tl.float32)
    own, highest, part = none, lowest, nothing
    share, high = _before(clear, step, early, size), tl.cdiv(end, step)
    begin = tl.where(share < early, share, early + (share - early) * size)
    for index in tl.range(begin, high, num_stages=late):
        key = index * step + tl.arange(0, step)
        exists = key < end
        slot = tl.load(table + key, mask=key < clear, other=0)
        slot += tl.load(paths + (key - clear), mask=(key >= clear) & exists, other=0)
        score, v = _block(query, keys, values, slot, exists, column, slot_stride, width, False)
        score = tl.where(exists[None, :], score, float("-inf"))
        own, highest, part = take(own, highest, part, score, v, scale, True)
        if ((index < early) | ((index + 1 - early) % size == 0)) & (index + 1 < high):  # the last one is kept at hand
            _keep(parts, stats, found + share * group, own, highest, part, real, column, width)
            own, highest, part = none, lowest, nothing
            share += 1
    wait(chained)
    start(chained)
    tl.debug_barrier()  # shares are read by other threads than those that wrote them
    total, top, gathered = none, lowest, nothing
    many = tl.where(high > 0, share, 0)
    for first in range(0, many, at_once):
        for i in tl.static_range(at_once):  # whose reads do not wait for each other
            there = real & (first + i < many)
            at = found + (first + i) * group
            other = tl.load(stats + 2 * at, mask=there, other=float("-inf"))
            more = tl.load(stats + 2 * at + 1, mask=there, other=0.0)
            read = tl.load(
                parts + at[:, None] * width + column[None, :],
                mask=there[:, None] & (column < width)[None, :],
                other=0.0,
            )
            total, top, gathered = merge(total, top, gathered, more, other, read)
    total, top, gathered = merge(total, top, gathered, own, highest, part)
    result = gathered / tl.where(total == 0.0, 1.0, total)[:, None]
    head = tl.program_id(0).to(tl.int64) * (tl.num_programs(1) * group) + shared * group + member
    tl.store(out + head[:, None] * width + column[None, :], result.to(out.dtype.element_ty), mask=inside)


def prefix_attention(queries: Tensor, keys: Tensor, values: Tensor, rows: Rows, scale: float, cut: Tiling) -> Tensor:
    """`attention` of rows of one token, or of trees with their keys in order, by fixed shares: `small` is 1.

    Cost: each key and value once per row, those from `clear` on once per token; two launches, which overlap.
    """
    n, heads, width = queries.shape
    kv_heads, tokens, room, chain = keys.shape[0], rows.tokens, rows.table.shape[1], chained()
    group, splits = heads // kv_heads, cut.shares(room + tokens)
    clear, paths = rows.past, rows.slots[:, None]
    if rows.paths is not None:
        clear, paths = rows.past if rows.clear is None else rows.clear, rows.paths
    out = torch.empty(n, heads * width, dtype=queries.dtype, device=queries.device)
    parts = torch.empty(n, kv_heads, splits, group, width, dtype=torch.float32, device=queries.device)
    stats = torch.empty(n, kv_heads, splits, group, 2, dtype=torch.float32, device=queries.device)
    lines, warps = SMALL if tokens * group <= FEW_QUERIES or queries.dtype == torch.float32 else LARGE
    tiles = rows.number * triton.cdiv(tokens * group, lines)
    programs = max(1, min(splits, round(PROGRAMS / (tiles * kv_heads))))
    strides = queries.stride(0), queries.stride(1), keys.stride(0), keys.stride(1)
    fixed = {"group": group, "width": width, "padded": max(16, triton.next_power_of_2(width)), "step": cut.keys}
    fixed |= {"early": cut.early, "size": cut.share // cut.keys}
    fixed |= {"enable_fp_fusion": False, "chained": chain, "launch_pdl": chain}
    units = scale * math.log2(math.e)
    fitted(
        lambda stages: _prefix[(tiles, kv_heads, programs)](
            queries, keys, values, parts, stats, rows.table, clear, rows.count,
            tokens, room, kv_heads, splits, *strides, units,
            rows=lines, late=stages, num_stages=stages, num_warps=warps, **fixed,
        ),
        STAGES,
        ("prefix", lines, cut.keys, width, queries.dtype),
    )  # fmt: skip
    fitted(
        lambda stages: _rest[(n, kv_heads)](
            queries, keys, values, out, parts, stats, rows.table, clear, rows.count, rows.places, paths,
            tokens, room, splits, *strides, paths.stride(0), paths.stride(1), units,
            lines=cut.heads, late=stages, num_stages=stages, num_warps=REST_WARPS, listed=rows.paths is not None,
            at_once=AT_ONCE, **fixed,
        ),
        STAGES,
        ("rest", cut.keys, width, queries.dtype),
    )  # fmt: skip
    return out
