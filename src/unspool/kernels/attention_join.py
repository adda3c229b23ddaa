"""Shares of attention as one: every share is a softmax of its own, and together they are that of all keys."""

import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait

LOG2E = tl.constexpr(1.4426950408889634)
ONES = tl.constexpr(16)  # columns of ones that weights are counted by
COLUMNS = 32  # of a program that joins: with few heads there would be few programs, each with much to read
AT_ONCE = 16  # shares whose reads do not wait for each other


@triton.jit
def merge(total, top, gathered, more, other, part):
    """Two shares of a softmax as one; `part` is [n, width], the others [n]. An empty share has −∞ on top."""
    highest = tl.maximum(top, other)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    fade, weight = tl.exp2(top - base), tl.exp2(other - base)
    gathered = tl.fma(gathered, fade[:, None] + tl.zeros_like(gathered), part * weight[:, None])
    return tl.fma(total, fade, more * weight), highest, gathered


@triton.jit
def take(total, top, gathered, score, v, scale, steady: tl.constexpr):
    """A block of keys into a running softmax: scores [n, keys], which `scale` brings to units of log 2, values v.

    Products are rounded where this says so and nowhere else (an explicit fma; `enable_fp_fusion` is off), so that a
    block has the same bits in every kernel. If `steady`, so has the sum of its weights, whatever a kernel's layout.
    """
    highest = tl.maximum(top, tl.max(score, 1) * scale)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    weight = tl.exp2(tl.fma(score, tl.full(score.shape, 1.0, tl.float32) * scale, tl.zeros_like(score) - base[:, None]))
    fade = tl.exp2(top - base)
    if steady:  # what is gathered is also what is counted, on tensor cores, whose order of adding is always the same
        ones = tl.full([score.shape[1], ONES], 1.0, v.dtype)
        gathered = tl.dot(weight.to(v.dtype), v, gathered * fade[:, None], input_precision="ieee")
        counted = tl.dot(weight.to(v.dtype), ones, tl.zeros([score.shape[0], ONES], tl.float32), input_precision="ieee")
        return tl.fma(total, fade, tl.max(counted, 1)), highest, gathered
    gathered = gathered * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
    return total * fade + tl.sum(weight, 1), highest, gathered


@triton.jit
def _join(
    parts, stats, sinks, out, number, splits, heads,
    width: tl.constexpr, padded: tl.constexpr, lanes: tl.constexpr, sinking: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    at = tl.program_id(0).to(tl.int64)
    split, column = tl.arange(0, lanes), tl.program_id(1) * padded + tl.arange(0, padded)
    there = split < splits
    found = split.to(tl.int64) * number + at
    top = tl.load(stats + 2 * found, mask=there, other=float("-inf"))
    total = tl.load(stats + 2 * found + 1, mask=there, other=0.0)
    # Read before it is known which shares are empty: one wait for the memory instead of two.
    inside = there[:, None] & (column < width)[None, :]
    part = tl.load(parts + found[:, None] * width + column[None, :], mask=inside, other=0.0)
    highest, sink = tl.max(top, 0), 0.0
    if sinking:
        sink = tl.load(sinks + at % heads).to(tl.float32) * LOG2E
        highest = tl.maximum(highest, sink)
    weight = tl.where(top == float("-inf"), 0.0, tl.exp2(top - tl.where(highest == float("-inf"), 0.0, highest)))
    total = tl.sum(tl.where(weight > 0.0, total * weight, 0.0), 0)
    if sinking:
        total += tl.exp2(sink - highest)
    result = tl.sum(tl.where((weight > 0.0)[:, None], part * weight[:, None], 0.0), 0)
    result /= tl.where(total == 0.0, 1.0, total)
    tl.store(out + at * width + column, result.to(out.dtype.element_ty), mask=column < width)


@triton.jit
def _join_in_order(
    parts, stats, sinks, out, number, splits, heads,
    width: tl.constexpr, padded: tl.constexpr, at_once: tl.constexpr, sinking: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """The same, share after share, as one program would that has them all."""
    start(chained)
    wait(chained)
    at = tl.program_id(0).to(tl.int64) + tl.zeros([1], tl.int64)
    column = tl.program_id(1) * padded + tl.arange(0, padded)
    total, top = tl.zeros([1], tl.float32), tl.full([1], float("-inf"), tl.float32)
    gathered = tl.zeros([1, padded], tl.float32)
    for first in range(0, splits, at_once):
        for i in tl.static_range(at_once):  # whose reads do not wait for each other
            there = first + i < splits
            found = (first + i) * number.to(tl.int64) + at
            other = tl.load(stats + 2 * found, mask=there, other=float("-inf"))
            more = tl.load(stats + 2 * found + 1, mask=there, other=0.0)
            inside = (column < width)[None, :] & there
            part = tl.load(parts + found[:, None] * width + column[None, :], mask=inside, other=0.0)
            empty = other == float("-inf")
            more, part = tl.where(empty, 0.0, more), tl.where(empty[:, None], 0.0, part)
            total, top, gathered = merge(total, top, gathered, more, other, part)
    if sinking:
        sink = tl.load(sinks + at % heads).to(tl.float32) * LOG2E
        total, top, gathered = merge(total, top, gathered, 1.0, sink, tl.zeros_like(gathered))
    result = gathered / tl.where(total == 0.0, 1.0, total)[:, None]
    where = out + at[:, None] * width + column[None, :]
    tl.store(where, result.to(out.dtype.element_ty), mask=(column < width)[None, :])


def join(parts: Tensor, stats: Tensor, out: Tensor, sinks: Tensor | None, in_order: bool) -> None:
    """Put shares [splits, n, heads, width] together in out [n, heads · width], as their tops and sums say.

    If `in_order`, share after share, as one program would that has them all. `sinks` [heads] take their part.
    """
    splits, n, heads, width = parts.shape
    chain, padded, sinking = chained(), max(16, triton.next_power_of_2(width)), sinks is not None
    given = parts, stats, out if sinks is None else sinks, out, n * heads, splits, heads
    block = min(padded, COLUMNS)
    if in_order:
        _join_in_order[(n * heads, padded // block)](
            *given, width=width, padded=block, at_once=AT_ONCE, sinking=sinking,
            num_warps=1, enable_fp_fusion=False, chained=chain, launch_pdl=chain,
        )  # fmt: skip
    else:
        _join[(n * heads, padded // block)](
            *given, width=width, padded=block, lanes=triton.next_power_of_2(splits), sinking=sinking,
            num_warps=4, enable_fp_fusion=False, chained=chain, launch_pdl=chain,
        )  # fmt: skip
