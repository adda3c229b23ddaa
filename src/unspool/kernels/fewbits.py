"""A matrix of 4-bit weights times few tokens: they are widened on their way from memory to the product."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .fit import fitted
from .gate import SILU
from .linear import finish, gated
from .tile import rows_for

PROGRAMS = 264  # two for each processor of an H200; fewer leave memory idle
STEP = 64  # bytes of a row at a time, at most, unless a group has more
LONG_STEP = 512  # and for one token


@triton.jit
def _spread(shared, first, left, inside, rows: tl.constexpr, pairs: tl.constexpr, group: tl.constexpr):
    """What every other group shares, of which `left` are left, once for each of its weights: [rows, pairs · group]."""
    pair = tl.arange(0, pairs)
    here = inside[:, None] & (pair < left)[None, :]
    each = tl.load(shared + first[:, None] + 2 * pair[None, :], mask=here, other=0.0).to(tl.float32)
    return tl.reshape(tl.broadcast_to(each[:, :, None], (rows, pairs, group)), (rows, pairs * group))


@triton.jit
def _lanes(
    y, below, above, line, scale, least, first, left, inside,
    block: tl.constexpr, pairs: tl.constexpr, group: tl.constexpr,
):  # fmt: skip
    """Pairs of groups times one token, summed lane by lane."""
    here = tl.arange(0, pairs * group) < left * group
    w = tl.load(line, mask=inside[:, None] & here[None, :], other=0, eviction_policy="evict_first")
    size = _spread(scale, first, left, inside, block, pairs, group)
    y += ((w & 15).to(tl.float32) * size + _spread(least, first, left, inside, block, pairs, group)) * below[None, :]
    size = _spread(scale, first + 1, left, inside, block, pairs, group)
    base = _spread(least, first + 1, left, inside, block, pairs, group)
    return y + ((w >> 4).to(tl.float32) * size + base) * above[None, :]


@triton.jit
def _one(
    x, weight, scale, least, bias, residual, out, width, depth,
    block: tl.constexpr, pairs: tl.constexpr, group: tl.constexpr, gates: tl.constexpr,
    silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """One token, on ordinary cores."""
    step: tl.constexpr = pairs * group
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < width
    lane = tl.arange(0, step)
    line = weight + column.to(tl.int64)[:, None] * (depth // 2) + lane[None, :]
    other = line + width.to(tl.int64) * (depth // 2)
    source = x + lane // group * 2 * group + lane % group
    groups = depth // group
    wait(chained)
    y = tl.zeros([block, step], tl.float32)
    z = tl.zeros([block, step], tl.float32)
    for at in range(0, depth // 2, step):
        here = at + lane < depth // 2
        below = tl.load(source + 2 * at, mask=here, other=0.0).to(tl.float32)
        above = tl.load(source + 2 * at + group, mask=here, other=0.0).to(tl.float32)
        first, left = column * groups + 2 * (at // group), groups // 2 - at // group
        y = _lanes(y, below, above, line + at, scale, least, first, left, inside, block, pairs, group)
        if gates:
            first += width * groups
            z = _lanes(z, below, above, other + at, scale, least, first, left, inside, block, pairs, group)
    start(chained)
    g = tl.sum(y, 1)
    kind = x.dtype.element_ty
    if gates:
        g = gated(g, tl.sum(z, 1), bias, column, width, inside, kind, has_bias, silu)
    else:
        more = g
        if adds:
            more = tl.load(residual + column, mask=inside, other=0.0).to(tl.float32)
        g = finish(g, bias, more, column, inside, kind, has_bias, adds)
    tl.store(out + column, g.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _four(
    y, below, above, line, scale, least, first, left, inside,
    block: tl.constexpr, pairs: tl.constexpr, group: tl.constexpr, kind: tl.constexpr,
):  # fmt: skip
    """Pairs of groups, one in the lower and one in the upper halves of the same bytes."""
    here = tl.arange(0, pairs * group) < left * group
    w = tl.load(line, mask=inside[:, None] & here[None, :], other=0)
    size = _spread(scale, first, left, inside, block, pairs, group)
    wide = (w & 15).to(tl.float32) * size + _spread(least, first, left, inside, block, pairs, group)
    y = tl.dot(wide.to(kind), below, y, input_precision="ieee")
    size = _spread(scale, first + 1, left, inside, block, pairs, group)
    wide = (w >> 4).to(tl.float32) * size + _spread(least, first + 1, left, inside, block, pairs, group)
    return tl.dot(wide.to(kind), above, y, input_precision="ieee")


@triton.jit
def _few(
    x, weight, scale, least, bias, residual, out, n, width, depth,
    rows: tl.constexpr, block: tl.constexpr, pairs: tl.constexpr, group: tl.constexpr, gates: tl.constexpr,
    silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    step: tl.constexpr = pairs * group
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < width
    row, lane = tl.arange(0, rows), tl.arange(0, step)
    real = row < n
    kind = x.dtype.element_ty
    line = weight + column.to(tl.int64)[:, None] * (depth // 2) + lane[None, :]
    other = line + width.to(tl.int64) * (depth // 2)
    source = x + row[None, :] * depth + (lane // group * 2 * group + lane % group)[:, None]
    groups = depth // group
    wait(chained)
    y = tl.zeros([block, rows], tl.float32)
    z = tl.zeros([block, rows], tl.float32)
    for at in range(0, depth // 2, step):
        here = real[None, :] & (at + lane < depth // 2)[:, None]
        below = tl.load(source + 2 * at, mask=here, other=0.0)
        above = tl.load(source + 2 * at + group, mask=here, other=0.0)
        first, left = column * groups + 2 * (at // group), groups // 2 - at // group
        y = _four(y, below, above, line + at, scale, least, first, left, inside, block, pairs, group, kind)
        if gates:
            first += width * groups
            z = _four(z, below, above, other + at, scale, least, first, left, inside, block, pairs, group, kind)
    start(chained)
    y, z = tl.trans(y), tl.trans(z)
    exists = real[:, None] & inside[None, :]
    spot = row[:, None].to(tl.int64) * width + column[None, :]
    if gates:
        y = gated(y, z, bias, column[None, :], width, inside[None, :], kind, has_bias, silu)
    else:
        more = y
        if adds:
            more = tl.load(residual + spot, mask=exists, other=0.0).to(tl.float32)
        y = finish(y, bias, more, column[None, :], exists, kind, has_bias, adds)
    tl.store(out + spot, y.to(out.dtype.element_ty), mask=exists)


def product(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    least: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    """y = x·Wᵀ + b for x [n ≤ 64, in] and W of 4 bits; `residual` and `activation` as `kernel.linear` takes them.

    weight is uint8 [out, in / 2], scale and least are [out, in / group]: W = least + scale·q, for several tokens
    rounded to x's type, where of every two groups the lower halves of the bytes hold the first.
    Cost: the stored bytes once; one launch.
    """
    n, depth = x.shape
    width = weight.shape[0] // 2 if activation else weight.shape[0]
    out = torch.empty(n, width, dtype=x.dtype, device=x.device)
    group = depth // scale.shape[1]
    b, r = (x if given is None else given for given in (bias, residual))
    gates, silu, has_bias, adds = activation is not None, activation == SILU, bias is not None, residual is not None
    chain = chained()
    if n == 1:
        block = next((size for size in (8, 4) if width // size >= PROGRAMS), 2) // (2 if gates else 1)
        _one[(triton.cdiv(width, block),)](
            x, weight, scale, least, b, r, out, width, depth,
            block=block, pairs=max(1, LONG_STEP // group), group=group, gates=gates, silu=silu, has_bias=has_bias,
            adds=adds, num_warps=4, chained=chain, launch_pdl=chain,
        )  # fmt: skip
        return out
    block = next((size for size in (64, 32) if width // size >= PROGRAMS), 16) if n <= 16 else 64
    fitted(
        lambda stages: _few[(triton.cdiv(width, block),)](
            x, weight, scale, least, b, r, out, n, width, depth,
            rows=rows_for(n), block=block, pairs=max(1, STEP // group), group=group, gates=gates,
            silu=silu, has_bias=has_bias, adds=adds, num_warps=block // 16,  # a warp for 16 rows: none widens twice
            num_stages=stages, chained=chain, launch_pdl=chain,
        ),
        4,
        ("few bits", rows_for(n), block, group, gates, x.dtype),
    )  # fmt: skip
    return out
