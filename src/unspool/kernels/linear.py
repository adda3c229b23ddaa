"""A matrix times few tokens: weights stream past once, and what stands around the product is done while they do."""

from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
import triton
import triton.language as tl
from torch import Tensor

from .chunked import LINES, chunked
from .draft_chain import chained, fetch, start, wait
from .epilogue import finish, gated, widened
from .few_tokens import few_tokens
from .fit import fitted
from .gate import SILU, gate
from .gate import reference as gate_reference
from .many_tokens import describable, many_tokens
from .norm import rms, rms_reference
from .shares import add_up
from .tile import LIBRARY, PIECE, PROCESSORS, Tile, cut_for, steady_cut

SMALL = 16 * 2**20  # bytes of a weight that is read in about the time a launch takes
AHEAD = 4  # steps of a small weight to fetch while the kernel before ends


@triton.jit
def _one(
    x, weight, scale, bias, norm, residual, out, parts, width, depth, eps,
    block: tl.constexpr, step: tl.constexpr, splits: tl.constexpr, normed: tl.constexpr, gates: tl.constexpr,
    silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr, scaled: tl.constexpr,
    late: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """One token: products are summed lane by lane and only then across lanes, so no tensor core waits for 15 zeros."""
    if not late:
        start(chained)
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < width
    each = tl.cdiv(tl.cdiv(depth, step), splits) * step
    begin = tl.program_id(1) * each
    end = tl.minimum(begin + each, depth)
    lane = tl.arange(0, step)
    kind = x.dtype.element_ty
    line = weight + column.to(tl.int64)[:, None] * depth + lane[None, :]
    other = line + width.to(tl.int64) * depth
    # The first weights are on their way while the token is normed.
    here = inside[:, None] & (begin + lane < end)[None, :]
    w = tl.load(line + begin, mask=here, other=0.0, eviction_policy="evict_first")
    v = w
    if gates:
        v = tl.load(other + begin, mask=here, other=0.0, eviction_policy="evict_first")
    wait(chained)
    more = column
    if adds and splits == 1:  # asked for now, it is there when the sums are
        more = tl.load(residual + column, mask=inside, other=0.0)
    size = 1.0
    if normed:
        square = tl.zeros([step], tl.float32)
        for at in range(0, depth, step):
            part = tl.load(x + at + lane, mask=at + lane < depth, other=0.0).to(tl.float32)
            square += part * part
        size = tl.rsqrt(tl.sum(square, 0) / depth + eps)
    y = tl.zeros([block, step], tl.float32)
    z = tl.zeros([block, step], tl.float32)
    for at in range(begin, end, step):
        here = inside[:, None] & (at + step + lane < end)[None, :]
        next_w = tl.load(line + at + step, mask=here, other=0.0, eviction_policy="evict_first")
        next_v = next_w
        if gates:
            next_v = tl.load(other + at + step, mask=here, other=0.0, eviction_policy="evict_first")
        part = tl.load(x + at + lane, mask=at + lane < end, other=0.0).to(tl.float32)
        if normed:
            factor = tl.load(norm + at + lane, mask=at + lane < end, other=0.0).to(tl.float32)
            part = (part * size * factor).to(kind).to(tl.float32)
        y += widened(w) * part[None, :]
        if gates:
            z += widened(v) * part[None, :]
        w, v = next_w, next_v
    if late:
        start(chained)
    g, u = tl.sum(y, 1), tl.sum(z, 1)
    if scaled:
        g *= tl.load(scale + column, mask=inside, other=0.0)
        if gates:
            u *= tl.load(scale + width + column, mask=inside, other=0.0)
    if splits > 1:
        full = width * 2 if gates else width
        into = parts + tl.program_id(1) * full + column
        tl.store(into, g, mask=inside)
        if gates:
            tl.store(into + width, u, mask=inside)
    else:
        if gates:
            g = gated(g, u, bias, column, width, inside, kind, has_bias, silu)
        else:
            g = finish(g, bias, more, column, inside, kind, has_bias, adds)
        tl.store(out + column, g.to(out.dtype.element_ty), mask=inside)


@triton.jit
def more_terms(y, x, w, turned: tl.constexpr, apart: tl.constexpr):
    """The sums y with the terms x·w; if `apart`, not by an addition, which would make it one product."""
    into = tl.zeros_like(y) if apart else y
    if turned:
        found = tl.dot(tl.trans(w), tl.trans(x), into, input_precision="ieee")
    else:
        found = tl.dot(x, w, into, input_precision="ieee")
    return tl.fma(found, tl.full(y.shape, 1.0, tl.float32), y) if apart else found


@triton.jit
def summed(
    source, line, other, norm, size, begin, end, lane, real, inside, kind: tl.constexpr,
    rows: tl.constexpr, block: tl.constexpr, step: tl.constexpr, normed: tl.constexpr, gates: tl.constexpr,
    turned: tl.constexpr, apart: tl.constexpr = False,
):  # fmt: skip
    """The terms of every sum from `begin` to `end`, and those of the other half of a gated product.

    If `apart`, the terms of a step are summed by themselves, and then these sums, in float32.
    """
    y = tl.zeros([block, rows] if turned else [rows, block], tl.float32)
    z = tl.zeros([block, rows] if turned else [rows, block], tl.float32)
    for at in range(begin, end, step):
        part = tl.load(source + at, mask=real[:, None] & (at + lane < end)[None, :], other=0.0)
        if normed:
            factor = tl.load(norm + at + lane, mask=at + lane < end, other=0.0).to(tl.float32)
            part = (part.to(tl.float32) * size[:, None] * factor[None, :]).to(kind)
        here = (at + lane < end)[:, None] & inside[None, :]
        w = tl.load(line + at, mask=here, other=0.0, eviction_policy="evict_first")
        if w.dtype != kind:
            w = widened(w).to(kind)
        y = more_terms(y, part, w, turned, apart)
        if gates:
            v = tl.load(other + at, mask=here, other=0.0, eviction_policy="evict_first")
            if v.dtype != kind:
                v = widened(v).to(kind)
            z = more_terms(z, part, v, turned, apart)
    return y, z


@triton.jit
def _few(
    x, weight, scale, bias, norm, residual, out, parts, n, width, depth, eps,
    rows: tl.constexpr, block: tl.constexpr, step: tl.constexpr, splits: tl.constexpr, normed: tl.constexpr,
    gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr, scaled: tl.constexpr,
    chunks: tl.constexpr, turned: tl.constexpr, apart: tl.constexpr, ahead: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """`rows` tokens at a time on tensor cores; neighbouring programs share their weights."""
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    real = row < n
    each = tl.cdiv(tl.cdiv(depth, step), splits * chunks) * step  # of splits or of chunks one is 1
    begin = tl.program_id(2) * each
    end = tl.minimum(begin + each, depth)
    lane = tl.arange(0, step)
    kind = x.dtype.element_ty
    source = x + row[:, None] * depth + lane[None, :]
    line = weight + column.to(tl.int64)[None, :] * depth + lane[:, None]
    other = line + width.to(tl.int64) * depth
    if ahead > 0:
        # The first weights are on their way, line by line of 128 bytes, while the kernel before ends.
        first = begin + 64 * tl.arange(0, ahead)
        place = tl.minimum(column, width - 1).to(tl.int64)[:, None] * depth + tl.minimum(first, depth - 1)[None, :]
        fetch(weight + place)
        if gates:
            fetch(weight + place + width.to(tl.int64) * depth)
    wait(chained)
    exists = real[:, None] & inside[None, :]
    spot = row[:, None].to(tl.int64) * width + column[None, :]
    more = spot
    if adds and splits == 1:  # asked for now, it is there when the sums are
        more = tl.load(residual + spot, mask=exists, other=0.0)
    size = tl.zeros([rows], tl.float32)
    if normed:
        square = tl.zeros([rows, step], tl.float32)
        for at in range(0, depth, step):
            wide = tl.load(source + at, mask=real[:, None] & (at + lane < depth)[None, :], other=0.0).to(tl.float32)
            square += wide * wide
        size = tl.rsqrt(tl.sum(square, 1) / depth + eps)
    y, z = summed(
        source, line, other, norm, size, begin, end, lane, real, inside, kind,
        rows, block, step, normed, gates, turned, apart,
    )  # fmt: skip
    for chunk in tl.static_range(1, chunks):  # in order, as if each had been a split
        begin, end = chunk * each, tl.minimum((chunk + 1) * each, depth)
        more_y, more_z = summed(
            source, line, other, norm, size, begin, end, lane, real, inside, kind,
            rows, block, step, normed, gates, turned, apart,
        )  # fmt: skip
        y, z = y + more_y, z + more_z
    start(chained)
    if turned:
        y, z = tl.trans(y), tl.trans(z)
    if scaled:
        y *= tl.load(scale + column, mask=inside, other=0.0)[None, :]
        if gates:
            z *= tl.load(scale + width + column, mask=inside, other=0.0)[None, :]
    if splits > 1:
        full = width * 2 if gates else width
        into = parts + (tl.program_id(2) * n + row)[:, None].to(tl.int64) * full + column[None, :]
        tl.store(into, y, mask=exists)
        if gates:
            tl.store(into + width, z, mask=exists)
    else:
        if gates:
            y = gated(y, z, bias, column[None, :], width, inside[None, :], kind, has_bias, silu)
        else:
            y = finish(y, bias, more, column[None, :], exists, kind, has_bias, adds)
        tl.store(out + spot, y.to(out.dtype.element_ty), mask=exists)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    scale: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    activation: str | None = None,
    out: Tensor | None = None,
    cut: Tile | None = None,
    steady: bool = False,
) -> Tensor:
    """y = x·Wᵀ + b for x [n, in] and W [out, in], both stored by rows; what is given beside is done in the same launch.

    `scale` [out] in float32: W is scale · weight, which may then be int8; for at most 64 tokens.
    `norm`: x is rms(x, norm, eps) first. `residual` [n, out]: residual + y. `activation`: W is [gate, up] stacked, and
    the result act(gate)·up has half its rows. The result has x's type, or that of `out`. Every step rounds as if it
    stood alone. Where PyTorch's product is faster (always for more than 128 tokens), the rest has launches of its own.
    If it is to be `steady`, a token's results have the same bits in whatever number of tokens.
    Cost: W once; one launch, or two where the sum over `in` is split for more than 16 tokens. No result depends on the
    order in which programs end.
    """
    n, depth = x.shape
    width = weight.shape[0] // 2 if activation else weight.shape[0]
    cut = cut or (steady_cut if steady else cut_for)(width, depth, n, x.dtype, activation is not None)
    if norm is not None and not cut.norms:
        x, norm = rms(x, norm, eps), None
    if cut == LIBRARY:
        return _library(x, weight, bias, residual, activation, out)
    if out is None:
        out = torch.empty(n, width, dtype=x.dtype, device=x.device)
    if cut.at_once:
        return few_tokens(x, weight, bias, scale, norm, eps, residual, activation, out, cut)
    if cut.described and describable(x, weight, out):
        return many_tokens(x, weight, bias, residual, activation, out, cut)
    if cut.described:
        cut = replace(cut, step=PIECE, stages=2)
    if _by_one(x, out.shape[1], cut, scale, activation):
        return chunked(x, weight, bias, residual, out, cut)
    chain, small = chained(), weight.numel() * weight.element_size() <= SMALL
    # What helps a small product, whose time is mostly its start and end, takes bandwidth from a large one.
    ahead = AHEAD * cut.step // 64 if chain and small else 0
    parts = out
    if cut.splits > 1:
        parts = torch.empty(cut.splits, n, weight.shape[0], dtype=torch.float32, device=x.device)
    s, b, f, r = (x if given is None else given for given in (scale, bias, norm, residual))
    gates, silu, has_bias, adds = activation is not None, activation == SILU, bias is not None, residual is not None
    columns = triton.cdiv(width, cut.block)
    if cut.rows == 1:
        _one[(columns, cut.splits)](
            x, weight, s, b, f, r, out, parts, width, depth, eps,
            block=cut.block, step=cut.step, splits=cut.splits, normed=norm is not None, gates=gates,
            silu=silu, has_bias=has_bias, adds=adds, scaled=scale is not None, late=small,
            num_warps=cut.warps, num_stages=cut.stages, chained=chain, launch_pdl=chain,
        )  # fmt: skip
    else:
        fitted(
            lambda stages: _few[(triton.cdiv(n, cut.rows), columns, cut.splits)](
                x, weight, s, b, f, r, out, parts, n, width, depth, eps,
                rows=cut.rows, block=cut.block, step=cut.step, splits=cut.splits, normed=norm is not None, gates=gates,
                silu=silu, has_bias=has_bias, adds=adds, scaled=scale is not None, chunks=cut.chunks, turned=cut.turned,
                apart=cut.apart, ahead=ahead, num_warps=cut.warps, num_stages=stages, chained=chain, launch_pdl=chain,
            ),
            cut.stages,
            ("product", cut, gates, x.dtype, weight.dtype),
        )  # fmt: skip
    if cut.splits > 1:
        add_up(x, parts, bias, residual, activation, out)
    return out


def _by_one(x: Tensor, width: int, cut: Tile, scale: Tensor | None, activation: str | None) -> bool:
    """Whether one program has all splits of a sum: where they are few, and no more programs than processors."""
    few = cut.splits > 1 and cut.rows == 16 and not cut.apart and not cut.norms
    few = few and triton.cdiv(width, LINES // cut.splits) <= PROCESSORS
    return few and scale is None and activation is None and x.dtype != torch.float32


def _library(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str | None, out: Tensor | None
) -> Tensor:
    alone = bias is None and residual is None and activation is None
    if alone and out is not None and out.dtype == x.dtype:
        return torch.mm(x, weight.t(), out=out)
    y = F.linear(x, weight, bias)
    if activation is not None:
        y = gate(y, activation)
    elif residual is not None:
        y = residual + y
    return y if out is None else out.copy_(y)


def reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    activation: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The same, step by step, with sums in float32."""
    if norm is not None:
        x = rms_reference(x, norm, eps)
    y = F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)
    if activation is not None:
        y = gate_reference(y, activation)
    elif residual is not None:
        y = residual + y
    return y if out is None else out.copy_(y)
