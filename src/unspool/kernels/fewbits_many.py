"""A matrix of 4- or 8-bit weights times more than a few tokens: tiles of it are widened to 16 bits on their way.

The words that `fewbits` masks for few tokens are widened here once for all of them, in registers, and handed to the
tensor cores as any other tile is. Weights of 4 bits are rounded to the tokens' type by that, as whole matrices are.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .epilogue import finish, gated
from .fit import fitted
from .gate import SILU
from .shares import add_up
from .tile import Tile

ROWS = 64  # tokens of a program
FULL = 256  # programs that keep the chip at work, if necessary by sharing sums
MOST_SPLITS = 4


def widening_cut(width: int, n: int, gated: bool) -> Tile:
    """The cut for results [n, width]: 64 results a program, or of a gated product twice as many."""
    rows = min(ROWS, max(16, triton.next_power_of_2(n)))
    programs = triton.cdiv(n, rows) * triton.cdiv(width, 64)
    splits = 1 if gated else min(MOST_SPLITS, max(1, FULL // programs))
    return Tile(rows, 64, 64, splits, stages=3)


@triton.jit
def _four(weight, shared, place, kind: tl.constexpr, tiles: tl.constexpr, zeros: tl.constexpr):
    """64 numbers of 16·tiles lines in 4 bits, widened; `place` is where the words of every tile begin [tiles]."""
    row = tl.arange(0, 8 * tiles)[:, None, None, None]  # a tile, and g
    t, p = tl.arange(0, 4)[None, :, None, None], tl.arange(0, 2)[None, None, :, None]
    m = tl.arange(0, 2)[None, None, None, :]
    begin = tl.reshape(tl.broadcast_to(place[:, None], [tiles, 8]), [8 * tiles])[:, None, None, None]
    words = tl.load(weight + (begin + (row % 8 * 4 + t) * 4 + 2 * p + m), eviction_policy="evict_first")
    near, l = begin * 2 + 256 + row % 8 * 8 + p, tl.arange(0, 2)[None, None, None, :]  # noqa: E741
    scale = tl.load(shared + (near + 2 * l), eviction_policy="evict_first").to(tl.float32)[:, :, :, None, None, :]
    other = tl.load(shared + (near + 4 + 2 * l), eviction_policy="evict_first").to(tl.float32)[:, :, :, None, None, :]
    if zeros:
        other = other * scale
    part, line = tl.arange(0, 4)[None, None, None, None, :, None], tl.arange(0, 2)[None, None, None, None, None, :]
    # A number of 4 bits behind 128, as float32 has it: no conversion, of which a processor does few at a time.
    q = ((words[:, :, :, :, None, None] >> (8 * (part % 2) + 16 * (part // 2) + 4 * line)) & 15) << 16
    w = (q | 0x43000000).to(tl.float32, bitcast=True) * scale + (other - 128.0 * scale)
    w = tl.reshape(w.to(kind), [tiles, 8, 4, 2, 2, 2, 2, 2])  # tile, g, t, p, m, h, i, l
    return tl.reshape(tl.permute(w, (0, 7, 1, 3, 2, 4, 6, 5)), [16 * tiles, 64])


@triton.jit
def _eight(weight, place, kind: tl.constexpr, tiles: tl.constexpr):
    """The same of 8 bits, without their scale."""
    row = tl.arange(0, 16 * tiles)[:, None, None]  # a tile, a group, and g
    t, e = tl.arange(0, 4)[None, :, None], tl.arange(0, 4)[None, None, :]
    begin = tl.reshape(tl.broadcast_to(place[:, None], [tiles, 16]), [16 * tiles])[:, None, None]
    words = tl.load(weight + (begin + (row % 16 * 4 + t) * 4 + e), eviction_policy="evict_first")
    part = tl.arange(0, 4)[None, None, None, :]
    q = (words[:, :, :, None] >> (8 * (part % 2) + 16 * (part // 2))) & 255
    w = (q | 0x4B000000).to(tl.float32, bitcast=True) - 8388736.0
    w = tl.reshape(w.to(kind), [tiles, 2, 8, 4, 2, 2, 2, 2])  # tile, p, g, t, m, l, h, i
    return tl.reshape(tl.permute(w, (0, 5, 2, 1, 3, 4, 7, 6)), [16 * tiles, 64])


@triton.jit
def _many(
    x, weight, shared, scale, bias, residual, out, parts, n, width, depth, total,
    bits: tl.constexpr, zeros: tl.constexpr, size: tl.constexpr, rows: tl.constexpr, block: tl.constexpr,
    splits: tl.constexpr, stages: tl.constexpr, gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr,
    adds: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """`block` results of `rows` tokens, or a share of their sums."""
    kind: tl.constexpr = x.dtype.element_ty
    tiles: tl.constexpr = block // 16
    last = tl.cdiv(width, 16) - 1
    tile = tl.minimum(tl.program_id(1) * tiles + tl.arange(0, tiles), last).to(tl.int64)
    row, lane = tl.program_id(0) * rows + tl.arange(0, rows), tl.arange(0, 64)
    real = row < n
    each = tl.cdiv(total, splits)
    begin = tl.program_id(2) * each
    wait(chained)
    y = tl.zeros([block, rows], tl.float32)
    z = tl.zeros([block, rows], tl.float32)
    for piece in tl.range(begin, tl.minimum(begin + each, total), num_stages=stages):
        at = piece * 64 + lane
        given = tl.load(x + row[None, :] * depth + at[:, None], mask=real[None, :] & (at < depth)[:, None], other=0.0)
        place = (tile * total + piece) * size
        if bits == 4:
            w = _four(weight, shared, place, kind, tiles, zeros)
        else:
            w = _eight(weight, place, kind, tiles)
        y = tl.dot(w, given, y)
        if gates:
            place += (last + 1).to(tl.int64) * total * size
            if bits == 4:
                w = _four(weight, shared, place, kind, tiles, zeros)
            else:
                w = _eight(weight, place, kind, tiles)
            z = tl.dot(w, given, z)
    start(chained)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = (column < width)[:, None]
    if bits == 8:
        y *= tl.load(scale + column, mask=column < width, other=0.0)[:, None]
        if gates:
            z *= tl.load(scale + width + column, mask=column < width, other=0.0)[:, None]
    exists, spot = inside & real[None, :], row[None, :].to(tl.int64) * width + column[:, None]
    if splits > 1:
        tl.store(parts + tl.program_id(2).to(tl.int64) * n * width + spot, y, mask=exists)
    else:
        if gates:
            y = gated(y, z, bias, column[:, None], width, inside, kind, has_bias, silu)
        else:
            more = y
            if adds:
                more = tl.load(residual + spot, mask=exists, other=0.0)
            y = finish(y, bias, more, column[:, None], inside, kind, has_bias, adds)
        tl.store(out + spot, y.to(kind), mask=exists)


def many(
    x: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str | None,
    zeros: bool,
    out: Tensor,
    cut: Tile | None = None,
) -> Tensor:
    """`fewbits.product` of more than a few tokens, into `out`; a gated one has whole tiles.

    Cost: the stored bytes once for every 64 tokens; one launch, or two where sums are shared.
    """
    (n, depth), (_, total, size), width = x.shape, weight.shape, out.shape[1]
    gates, chain = activation is not None, chained()
    cut = cut or widening_cut(width, n, gates)
    parts = out if cut.splits == 1 else torch.empty(cut.splits, n, width, dtype=torch.float32, device=x.device)
    s, b, r = (out if given is None else given for given in (scale, bias, residual))
    fitted(
        lambda stages: _many[(triton.cdiv(n, cut.rows), triton.cdiv(width, cut.block), cut.splits)](
            x, weight, weight.view(torch.float16), s, b, r, out, parts, n, width, depth, total,
            bits=4 if scale is None else 8, zeros=zeros, size=size, rows=cut.rows, block=cut.block, splits=cut.splits,
            stages=stages, gates=gates, silu=activation == SILU, has_bias=bias is not None, adds=residual is not None,
            num_warps=cut.warps, num_stages=stages, chained=chain, launch_pdl=chain,
        ),
        cut.stages,
        ("few bits", cut, scale is None, gates, x.dtype),
    )  # fmt: skip
    if cut.splits > 1:
        add_up(x, parts, bias, residual, None, out)
    return out
