"""Tree attention over slots: flash decoding, a row's keys split among programs and joined in a fixed order."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from .attention_join import LOG2E, join, merge, take
from .draft_chain import chained, start, wait
from .fit import fitted
from .kernel_rows import Rows, Visibility
from .prefix_attention import prefix_attention
from .prompt_attention import prompt_attention
from .tiling import Tiling, prompt, tiling

BITS = tl.constexpr(int(Visibility.BITS))
BLOCKS = tl.constexpr(int(Visibility.BLOCKS))
FULL = tl.constexpr(int(Visibility.FULL))
CAUSAL = tl.constexpr(int(Visibility.CAUSAL))


@triton.jit
def _step(
    total, top, gathered, query, keys, values, table, slots, places, sees, key_places,
    at, past, count, clear, place, token, real, window, block, slot_stride, scale, cap,
    words: tl.constexpr, width: tl.constexpr, padded: tl.constexpr, step: tl.constexpr,
    sight: tl.constexpr, windowed: tl.constexpr, listed: tl.constexpr, masked: tl.constexpr, steady: tl.constexpr,
    capped: tl.constexpr, chunked: tl.constexpr,
):  # fmt: skip
    """Take one block of keys into the running softmax; `masked` where some token may not see some key."""
    key = at + tl.arange(0, step)
    exists = key < past + count
    slot = tl.load(table + key, mask=key < past, other=0)
    slot += tl.load(slots + (key - past), mask=(key >= past) & exists, other=0)
    column = tl.arange(0, padded)
    where = slot.to(tl.int64)[:, None] * slot_stride + column[None, :]
    inside = exists[:, None] & (column < width)[None, :]
    k = tl.load(keys + where, mask=inside, other=0.0)
    v = tl.load(values + where, mask=inside, other=0.0)
    score = tl.dot(query, tl.trans(k), input_precision="ieee")
    if capped:  # cap·tanh(score / cap), in units of log 2 from here on
        score = cap * LOG2E * (1.0 - 2.0 / (tl.exp(2.0 * score * scale / cap) + 1.0))
    if masked:
        seen = exists[None, :] & real[:, None]
        if sight == CAUSAL:
            seen = seen & (key[None, :] <= past + token[:, None])
        if sight == BLOCKS:
            new = tl.load(places + (key - past), mask=(key >= past) & exists, other=0)
            seen = seen & ((key < past)[None, :] | (new[None, :] // block <= place[:, None] // block))
        if sight == BITS:
            bit = key - clear
            word = tl.zeros_like(score).to(tl.int32)
            for i in tl.static_range((step + 31) // 32 + 1):  # one load per token and word, not per token and key
                index = ((at - clear) >> 5) + i
                asked = real & (index >= 0) & (index < words)
                one = tl.load(sees + token * words + index, mask=asked, other=0)
                word = tl.where((bit >> 5)[None, :] == index, one[:, None], word)
            seen = seen & ((bit < 0)[None, :] | (((word >> (bit & 31)[None, :]) & 1) == 1))
        score = tl.where(seen, score, float("-inf"))
    if windowed:
        if listed:
            key_place = key
        elif sight == BITS:
            later = tl.load(key_places + (key - clear), mask=(key >= clear) & (key - clear < words * 32), other=0)
            key_place = tl.where(key < clear, key, later)
        else:
            later = tl.load(places + (key - past), mask=(key >= past) & exists, other=0)
            key_place = tl.where(key < past, key, later)
        if chunked:
            near = key_place[None, :] >= (place - place % window)[:, None]
        else:
            near = place[:, None] - key_place[None, :] < window
        score = tl.where(near, score, float("-inf"))
    return take(total, top, gathered, score, v, 1.0 if capped else scale, steady)


@triton.jit
def _share(split, early: tl.constexpr, small: tl.constexpr, big: tl.constexpr):
    """The first step of a share of fixed size, and how many it has: of the first keys, few each."""
    begin = tl.where(split < early, split * small, early * small + (split - early) * big)
    return begin, tl.where(split < early, small, big)


@triton.jit
def _attend(
    queries, keys, values, sinks, out, parts, stats,
    table, past_of, count_of, clear_of, slots, places, sees, key_places, paths,
    tokens, room, window, block, token_stride, head_stride, kv_stride, slot_stride, row_path, token_path,
    scale, cap,
    words: tl.constexpr, group: tl.constexpr, lines: tl.constexpr, width: tl.constexpr, padded: tl.constexpr,
    rows: tl.constexpr, step: tl.constexpr, whole: tl.constexpr,
    share: tl.constexpr, early: tl.constexpr, small: tl.constexpr,
    sight: tl.constexpr, windowed: tl.constexpr, listed: tl.constexpr, joins: tl.constexpr, late: tl.constexpr,
    capped: tl.constexpr, chunked: tl.constexpr, sinking: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    wait(chained)
    tiles = tl.cdiv(tokens * lines, rows)
    row, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    shared, split = tl.program_id(1), tl.program_id(2)
    kv_heads = tl.num_programs(1)
    past, count = tl.load(past_of + row), tl.load(count_of + row)
    folded = tile * rows + tl.arange(0, rows)
    token, member = folded // lines, folded % lines
    head, ours = shared * group + member, (token < tokens) & (member < group)
    real = (token < count) & (member < group)
    clear = past
    if sight == BITS or listed:
        clear = tl.load(clear_of + row)
    place = tl.load(places + row * tokens + token, mask=real, other=2147483647)

    # The keys that some token of this tile may see, and those of them that every token sees but for a window.
    first_token, last_token = tile * rows // lines, tl.minimum((tile * rows + rows - 1) // lines, count - 1)
    alive = first_token < count
    if listed:  # a token alone, which sees all of its keys
        past, count = clear, tl.where(alive, tl.load(places + row * tokens + tile) + 1 - clear, 0)
    low, high, plain = 0, past + count, clear
    if sight == CAUSAL:
        high, plain = past + last_token + 1, past + first_token + 1
    if sight == FULL:
        plain = past + count
    if windowed:
        low = tl.maximum(tl.minimum(tl.min(place, 0) - window + 1, clear), 0) // step
    high = tl.where(alive, tl.cdiv(high, step), low)
    plain = tl.minimum(plain, past + count) // step
    if share > 0:
        begin, size = _share(split, early, small, share // step)
        end = tl.minimum(begin + size, high)
        begin = tl.maximum(begin, low)
    else:
        # As even as can be, the later shares being the smaller ones: theirs are the blocks with masks.
        many, blocks = tl.num_programs(2), high - low
        begin, end = low + tl.cdiv(split * blocks, many), low + tl.cdiv((split + 1) * blocks, many)
    middle = tl.maximum(begin, tl.minimum(plain, end))

    column = tl.arange(0, padded)
    exists = ours[:, None] & (column < width)[None, :]
    at_query = (row * tokens + token).to(tl.int64)[:, None] * token_stride + head[:, None] * head_stride
    query = tl.load(queries + at_query + column[None, :], mask=exists, other=0.0)
    keys += shared.to(tl.int64) * kv_stride
    values += shared.to(tl.int64) * kv_stride
    table += row.to(tl.int64) * room
    if listed:
        slots = paths + row * row_path + tile * token_path
    else:
        slots += row * tokens
    places += row * tokens
    sees += row * tokens * words
    key_places += row * words * 32
    total = tl.zeros([rows], tl.float32)
    top = tl.full([rows], float("-inf"), tl.float32)
    gathered = tl.zeros([rows, padded], tl.float32)
    if joins:  # all shares of this tile by one program, one after the other
        own, highest = tl.zeros([rows], tl.float32), tl.full([rows], float("-inf"), tl.float32)
        part = tl.zeros([rows, padded], tl.float32)
        for index in tl.range(low, high, num_stages=late):
            own, highest, part = _step(
                own, highest, part, query, keys, values, table, slots, places, sees, key_places,
                index * step, past, count, clear, place, token, real, window, block, slot_stride, scale,
                cap, words, width, padded, step, sight, windowed, listed, True, True, capped, chunked,
            )  # fmt: skip
            later = index + 1 - early * small
            if tl.where(later <= 0, (index + 1) % small == 0, later % (share // step) == 0) | (index + 1 == high):
                total, top, gathered = merge(total, top, gathered, own, highest, part)
                own, highest = tl.zeros([rows], tl.float32), tl.full([rows], float("-inf"), tl.float32)
                part = tl.zeros([rows, padded], tl.float32)
    else:
        for index in range(begin, middle):
            total, top, gathered = _step(
                total, top, gathered, query, keys, values, table, slots, places, sees, key_places,
                index * step, past, count, clear, place, token, real, window, block, slot_stride, scale,
                cap, words, width, padded, step, sight, windowed, listed, False, share > 0, capped, chunked,
            )  # fmt: skip
        for index in tl.range(middle, end, num_stages=late):
            total, top, gathered = _step(
                total, top, gathered, query, keys, values, table, slots, places, sees, key_places,
                index * step, past, count, clear, place, token, real, window, block, slot_stride, scale,
                cap, words, width, padded, step, sight, windowed, listed, True, share > 0, capped, chunked,
            )  # fmt: skip

    found = (row * tokens + token).to(tl.int64) * (kv_heads * group) + head
    start(chained)
    if whole:
        if sinking:
            sink = tl.load(sinks + head, mask=ours, other=float("-inf")).to(tl.float32) * LOG2E
            total, top, gathered = merge(total, top, gathered, 1.0, sink, tl.zeros_like(gathered))
        result = gathered / tl.where(total == 0.0, 1.0, total)[:, None]
        result = tl.where(real[:, None], result, 0.0)
        tl.store(out + found[:, None] * width + column[None, :], result.to(out.dtype.element_ty), mask=exists)
    else:
        # An empty share is told by its −∞; what it gathered is neither written nor read.
        number = tl.num_programs(0) // tiles * tokens * kv_heads * group
        found += split.to(tl.int64) * number
        tl.store(stats + 2 * found, tl.where(real, top, float("-inf")), mask=ours)
        tl.store(stats + 2 * found + 1, total, mask=ours)
        tl.store(
            parts + found[:, None] * width + column[None, :], gathered, mask=exists & (real & (total > 0.0))[:, None]
        )


def attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: Rows,
    scale: float,
    window: int | None = None,
    cut: Tiling | None = None,
    *,
    chunked: bool = False,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """softmax(scale·q·Kᵀ + mask)·V of queries [n, heads, width] and pools [kv_heads, slots, width]: [n, heads·width].

    If `chunked`, a token sees its own stretch of `window` places, counted from the first. Scores x become
    softcap·tanh(x/softcap); `sinks` [heads] are scores of nothing, which take their part of the softmax.
    The heads of a group are folded into one tile, so that each key is read once for all of them. Padding gets zeros.
    Cost: each key and value once per tile of tokens; one launch, or two where the keys are split.
    """
    n, heads, width = queries.shape
    kv_heads = keys.shape[0]
    group, number, tokens, room = heads // kv_heads, rows.number, rows.tokens, rows.table.shape[1]
    listed, paths = rows.paths is not None, rows.table[:, None] if rows.paths is None else rows.paths
    bare = window is None and softcap is None and sinks is None
    if rows.sight == Visibility.CAUSAL and not listed and tokens > 1 and bare:
        many = cut or prompt(number, tokens, kv_heads, group, width, queries.dtype)
        if many is not None and many.joins:
            return prompt_attention(queries, keys, values, rows, scale, many)
    cut = cut or tiling(number, tokens, kv_heads, group, width, room + tokens, queries.dtype)
    if cut.prefixed and bare and (listed or tokens == 1):
        return prefix_attention(queries, keys, values, rows, scale, cut)
    lines = cut.heads if listed else group  # of a tile, for one token
    out = torch.empty(n, heads * width, dtype=queries.dtype, device=queries.device)
    parts = stats = out
    if cut.splits > 1:
        parts = torch.empty(cut.splits, n, heads, width, dtype=torch.float32, device=queries.device)
        stats = torch.empty(cut.splits, n, heads, 2, dtype=torch.float32, device=queries.device)
    chain, padded = chained(), max(16, triton.next_power_of_2(width))
    fitted(
        lambda stages: _attend[(number * triton.cdiv(tokens * lines, cut.heads), kv_heads, cut.splits)](
            queries, keys, values, out if sinks is None else sinks, out, parts, stats,
            rows.table, rows.past, rows.count, rows.past if rows.clear is None else rows.clear,
            rows.slots, rows.places, rows.slots if rows.sees is None else rows.sees,
            rows.slots if rows.key_places is None else rows.key_places, paths,
            tokens, room, window or 0, rows.block, queries.stride(0), queries.stride(1), keys.stride(0), keys.stride(1),
            paths.stride(0), paths.stride(1), scale if softcap else scale * math.log2(math.e), softcap or 0.0,
            words=1 if rows.sees is None else rows.sees.shape[1], group=group, lines=lines,
            width=width, padded=padded, rows=cut.heads, step=cut.keys, whole=cut.splits == 1,
            share=cut.share, early=cut.early, small=cut.small, sight=int(Visibility.FULL if listed else rows.sight),
            windowed=window is not None, listed=listed, joins=cut.joins, late=stages if cut.share else 1,
            capped=softcap is not None, chunked=chunked, sinking=sinks is not None,
            num_warps=cut.warps, num_stages=stages, enable_fp_fusion=False, chained=chain, launch_pdl=chain,
        ),
        cut.stages,
        ("attention", cut, width, queries.dtype),
    )  # fmt: skip
    if cut.splits > 1:
        join(parts, stats, out, sinks, in_order=cut.share > 0)
    return out


def reference(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: Rows,
    scale: float,
    window: int | None = None,
    *,
    chunked: bool = False,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """The same, row by row, in float32."""
    n, heads, width = queries.shape
    out = torch.zeros(n, heads, width, dtype=queries.dtype, device=queries.device)
    for row in range(rows.number):
        count, first = int(rows.count[row]), row * rows.tokens
        if count == 0:
            continue
        slots, seen = rows.seen(row, window, chunked)
        k, v = (pool[:, slots].float().repeat_interleave(heads // pool.shape[0], 0) for pool in (keys, values))
        scores = torch.einsum("ihd,hjd->hij", queries[first : first + count].float(), k) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores.masked_fill(~seen, float("-inf"))
        if sinks is not None:
            scores = torch.cat((scores, sinks.float()[:, None, None].expand(-1, count, 1)), -1)
        weights = scores.softmax(-1)[..., : len(slots)]
        out[first : first + count] = torch.einsum("hij,hjd->ihd", weights, v).to(out.dtype)
    return out.flatten(1)
