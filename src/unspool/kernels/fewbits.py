"""A matrix of 4-bit weights times few tokens: they are widened on their way from memory to the product."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .epilogue import finish, gated
from .fit import fitted
from .gate import SILU
from .tile import rows_for

PROGRAMS = 264  # two for each processor of an H200; fewer leave memory idle
LONG = 8192  # results from which on a program has more of them
PAIRS = 16  # pairs of groups of a row at a time for one token, where a group has 32 weights
KINDS = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
LANES = 64  # words of a row at a time for several


@triton.jit
def _four(w, k: tl.constexpr, chained: tl.constexpr):
    """Weight k of each word, of eight; `w` is shifted down by 16 for the last four.

    Set into the bits of a power of two, they are that number and themselves: no conversion, of which a processor does
    few at a time, and no shift.
    """
    at: tl.constexpr = 4 * (k % 4)
    if chained:  # one instruction, where the compiler makes two
        bits = tl.inline_asm_elementwise(
            "lop3.b32 $0, $1, $2, $3, 0xEA;",
            "=r,r,n,r",
            [w, 15 << at, (150 - at) << 23],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    else:
        bits = (w & (15 << at)) | ((150 - at) << 23)
    return bits.to(tl.float32, bitcast=True) - 2.0 ** (23 - at)


@triton.jit
def _shared(values, first, left, inside, pairs: tl.constexpr):
    """What every other group shares, of which `left` are left: [rows, pairs, 1]."""
    pair = tl.arange(0, pairs)
    here = inside[:, None] & (pair < left)[None, :]
    return tl.load(values + first[:, None] + 2 * pair[None, :], mask=here, other=0.0).to(tl.float32)[:, :, None]


@triton.jit
def _lanes(
    y, w, source, scale, least, first, left, inside,
    block: tl.constexpr, pairs: tl.constexpr, words: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Pairs of groups times one token, summed lane by lane. All is asked for before any of it is needed."""
    here = (tl.arange(0, pairs) < left)[:, None]
    a = tl.load(source, mask=here, other=0.0)
    b = tl.load(source + words, mask=here, other=0.0)
    c = tl.load(source + 2 * words, mask=here, other=0.0)
    d = tl.load(source + 3 * words, mask=here, other=0.0)
    e = tl.load(source + 4 * words, mask=here, other=0.0)
    f = tl.load(source + 5 * words, mask=here, other=0.0)
    g = tl.load(source + 6 * words, mask=here, other=0.0)
    h = tl.load(source + 7 * words, mask=here, other=0.0)
    size, base = _shared(scale, first, left, inside, pairs), _shared(least, first, left, inside, pairs)
    y += _times(w, a, b, c, d, size, base, chained)
    size, base = _shared(scale, first + 1, left, inside, pairs), _shared(least, first + 1, left, inside, pairs)
    return y + _times(w >> 16, e, f, g, h, size, base, chained)


@triton.jit
def _times(w, a, b, c, d, size, base, chained: tl.constexpr):
    """The first four weights of each word, of one group, times four numbers of a token."""
    a, b, c, d = a.to(tl.float32), b.to(tl.float32), c.to(tl.float32), d.to(tl.float32)
    found = _four(w, 0, chained) * a[None, :, :] + _four(w, 1, chained) * b[None, :, :]
    found += _four(w, 2, chained) * c[None, :, :]
    found += _four(w, 3, chained) * d[None, :, :]
    return found * size + base * (a + b + c + d)[None, :, :]


@triton.jit
def _one(
    x, weight, scale, least, bias, residual, out, width, depth,
    block: tl.constexpr, pairs: tl.constexpr, group: tl.constexpr, gates: tl.constexpr,
    silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr, kind: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """One token, on ordinary cores: what a thread reads of it serves several rows of weights."""
    words: tl.constexpr = group // 4
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < width
    pair, word = tl.arange(0, pairs), tl.arange(0, words)
    total = depth // (2 * group)
    line = weight + column.to(tl.int64)[:, None, None] * (depth // 8) + pair[None, :, None] * words
    line += word[None, None, :]
    other = line + width.to(tl.int64) * (depth // 8)
    source = x + pair[:, None] * (2 * group) + word[None, :]
    here = inside[:, None, None] & (pair < total)[None, :, None]
    w = tl.load(line, mask=here, other=0, eviction_policy="evict_first")
    v = w
    if gates:
        v = tl.load(other, mask=here, other=0, eviction_policy="evict_first")
    wait(chained)
    y = tl.zeros([block, pairs, words], tl.float32)
    z = tl.zeros([block, pairs, words], tl.float32)
    for at in range(0, total, pairs):
        here = inside[:, None, None] & (at + pairs + pair < total)[None, :, None]
        next_w = tl.load(line + (at + pairs) * words, mask=here, other=0, eviction_policy="evict_first")
        next_v = next_w
        if gates:
            next_v = tl.load(other + (at + pairs) * words, mask=here, other=0, eviction_policy="evict_first")
        first, now = column * (2 * total) + 2 * at, source + at * (2 * group)
        y = _lanes(y, w, now, scale, least, first, total - at, inside, block, pairs, words, chained)
        if gates:
            first += width * (2 * total)
            z = _lanes(z, v, now, scale, least, first, total - at, inside, block, pairs, words, chained)
        w, v = next_w, next_v
    start(chained)
    g = tl.sum(tl.sum(y, 2), 1)
    if gates:
        g = gated(g, tl.sum(tl.sum(z, 2), 1), bias, column, width, inside, kind, has_bias, silu)
    else:
        more = g
        if adds:
            more = tl.load(residual + column, mask=inside, other=0.0).to(tl.float32)
        g = finish(g, bias, more, column, inside, kind, has_bias, adds)
    tl.store(out + column, g.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _wide(
    y, line, source, here, scale, least, first, left, inside, exists,
    block: tl.constexpr, pairs: tl.constexpr, words: tl.constexpr, kind: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Pairs of groups times several tokens, on tensor cores: one eighth of their weights after the other."""
    w = tl.load(line, mask=exists, other=0)
    for half in tl.static_range(2):
        own = w >> (16 * half)
        size = _shared(scale, first + half, left, inside, pairs)
        base = _shared(least, first + half, left, inside, pairs)
        for k in tl.static_range(4):
            part = tl.load(source + (4 * half + k) * words, mask=here, other=0.0)
            wide = _four(own, k, chained) * size + base
            y = tl.dot(tl.reshape(wide.to(kind), (block, pairs * words)), part, y, input_precision="ieee")
    return y


@triton.jit
def _few(
    x, weight, scale, least, bias, residual, out, n, width, depth,
    rows: tl.constexpr, block: tl.constexpr, pairs: tl.constexpr, group: tl.constexpr, gates: tl.constexpr,
    silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    words: tl.constexpr = group // 4
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < width
    row, lane = tl.arange(0, rows), tl.arange(0, pairs * words)
    pair, word = tl.arange(0, pairs), tl.arange(0, words)
    real, total = row < n, depth // (2 * group)
    kind = x.dtype.element_ty
    line = weight + column.to(tl.int64)[:, None, None] * (depth // 8) + pair[None, :, None] * words
    line += word[None, None, :]
    other = line + width.to(tl.int64) * (depth // 8)
    source = x + row[None, :] * depth + (lane // words * 2 * group + lane % words)[:, None]
    wait(chained)
    y = tl.zeros([block, rows], tl.float32)
    z = tl.zeros([block, rows], tl.float32)
    for at in range(0, total, pairs):
        here = real[None, :] & (at + lane // words < total)[:, None]
        exists = inside[:, None, None] & (at + pair < total)[None, :, None]
        first, left, now = column * (2 * total) + 2 * at, total - at, source + at * (2 * group)
        y = _wide(
            y, line + at * words, now, here, scale, least, first, left, inside, exists,
            block, pairs, words, kind, chained,
        )  # fmt: skip
        if gates:
            first += width * (2 * total)
            z = _wide(
                z, other + at * words, now, here, scale, least, first, left, inside, exists,
                block, pairs, words, kind, chained,
            )  # fmt: skip
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
    kind: torch.dtype | None = None,
) -> Tensor:
    """y = x·Wᵀ + b for x [n ≤ 64, in] and W of 4 bits; `residual` and `activation` as `kernel.linear` takes them.

    weight is int32 [out, in / 8], scale and least are [out, in / group]: W = least + scale·q, for several tokens
    rounded to x's type. Word j of two groups has their weights j, j + group/4, j + 2·group/4, …, the lowest bits first.
    One token may come in float32, which is read faster: every step is rounded to `kind` then (None: x's type), and what
    goes on to another product, the result of an activation, is left in float32.
    Cost: the stored bytes once; one launch.
    """
    n, depth = x.shape
    kind = kind or x.dtype
    width = weight.shape[0] // 2 if activation else weight.shape[0]
    out = torch.empty(n, width, dtype=torch.float32 if n == 1 and activation else kind, device=x.device)
    group = depth // scale.shape[1]
    b, r = (x if given is None else given for given in (bias, residual))
    gates, silu, has_bias, adds = activation is not None, activation == SILU, bias is not None, residual is not None
    chain = chained()
    if n == 1:
        block = (16 if width >= LONG else 8) // (2 if gates else 1)
        _one[(triton.cdiv(width, block),)](
            x, weight, scale, least, b, r, out, width, depth,
            block=block, pairs=max(1, PAIRS * 32 // group), group=group, gates=gates, silu=silu, has_bias=has_bias,
            adds=adds, kind=KINDS[kind], num_warps=4, chained=chain, launch_pdl=chain,
        )  # fmt: skip
        return out
    block = next((size for size in (64, 32) if width // size >= PROGRAMS), 16) if n <= 16 else 64
    fitted(
        lambda stages: _few[(triton.cdiv(width, block),)](
            x, weight, scale, least, b, r, out, n, width, depth,
            rows=rows_for(n), block=block, pairs=max(1, LANES * 4 // group), group=group, gates=gates,
            silu=silu, has_bias=has_bias, adds=adds, num_warps=block // 16,  # a warp for 16 rows: none widens twice
            num_stages=stages, chained=chain, launch_pdl=chain,
        ),
        4,
        ("few bits", rows_for(n), block, group, gates, x.dtype),
    )  # fmt: skip
    return out
