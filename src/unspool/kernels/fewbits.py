"""A matrix of 4-bit weights times few tokens: they are stored as tensor cores take them, and masked on their way there.

The warps of a program have the same results and each a share of every sum, so that a small matrix too keeps all of the
memory busy. What a warp reads next is always on its way while it multiplies what it has, and the first of it already
while the kernel before ends.
"""
# mypy: disable-error-code="assignment"
# Tuples of tensors grow while Triton unrolls a loop.

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .epilogue import finish, gated
from .fragments import enlarged, four, sums, unit
from .gate import SILU, gate

GROUP = 32  # weights that share a scale and a least
LINES, PIECE = 16, 2 * GROUP  # lines of a tile, and the weights of each that stand together
MOST_TOKENS = 32  # of a program
LONG = 6144  # results from which on there are programs enough for fewer warps


@dataclass(frozen=True)
class Share:
    """How a product is cut: `warps` of a program share its sums, each has `ahead` pieces on their way.

    A program has `tiles` of 16 results, or of a gated product twice as many. A token's bits depend on the warps alone.
    """

    warps: int = 8
    ahead: int = 4
    tiles: int = 1


def share_for(width: int, n: int, gated: bool) -> Share:
    """The cut for results [n, width], as measured on an H200; the warps that share a sum are as many for any n.

    Many tokens too must be read, so that a program takes more lines of weights then, a piece at a time.
    """
    warps = 4 if gated or width >= LONG else 8
    if n > 8:
        return Share(warps, ahead=1, tiles=2)
    return Share(warps, ahead=8 if width >= LONG and not gated else 4)


@triton.jit
def _words(weight, shared, begin, at, total, piece, tiles: tl.constexpr, ahead: tl.constexpr, even: tl.constexpr):
    """The next pieces of every warp, one after the other: its weights, then what their groups share."""
    pieces = ()
    warps: tl.constexpr = weight.shape[0] // 32
    for i in tl.static_range(ahead):
        for r in tl.static_range(tiles):
            place = begin[r] + at + i * warps
            if even:
                pieces += (tl.load(weight + place * 128, eviction_policy="evict_first"),)
                pieces += (tl.load(shared + place * 32, eviction_policy="evict_first"),)
            else:
                here = (piece + at + i * warps < total)[:, None]
                pieces += (tl.load(weight + place * 128, mask=here, other=0, eviction_policy="evict_first"),)
                pieces += (tl.load(shared + place * 32, mask=here, other=0, eviction_policy="evict_first"),)
    return pieces


@triton.jit
def _terms(
    ys, pieces, x, token, at, piece, n, depth, kind: tl.constexpr, tiles: tl.constexpr, ahead: tl.constexpr,
    some: tl.constexpr, even: tl.constexpr, packs: tl.constexpr,
):  # fmt: skip
    """Add the terms of the pieces that are there to all sums, piece by piece."""
    warps: tl.constexpr = x.shape[0] // 32
    for i in tl.static_range(ahead):
        after = ()
        for s in tl.static_range(some):
            here = token + 8 * s < n
            low, high = here, here
            if not even:
                low = here & ((piece + at + i * warps) * 64 < depth)
                high = here & ((piece + at + i * warps) * 64 + 32 < depth)
            spot = x + (depth * (4 * s) + (at + i * warps) * 32)
            a = enlarged(tl.load(spot, mask=low[:, None], other=0), kind, packs)
            b = enlarged(tl.load(spot + 16, mask=high[:, None], other=0), kind, packs)
            c, d = sums(a, kind, packs), sums(b, kind, packs)
            for r in tl.static_range(tiles):
                w, shared = pieces[2 * (i * tiles + r)], pieces[2 * (i * tiles + r) + 1]
                after += (four(ys[s * tiles + r], w, shared, a, b, c, d, kind, packs),)
        ys = after
    return ys


@triton.jit
def _product(
    x, weight, shared, bias, residual, out, n, width, depth, total, kind: tl.constexpr,
    tiles: tl.constexpr, some: tl.constexpr, warps: tl.constexpr, ahead: tl.constexpr,
    gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr, even: tl.constexpr,
    packs: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """`tiles` of 16 results for 8·some tokens by one program."""
    full: tl.constexpr = 2 * tiles if gates else tiles
    thread, each = tl.arange(0, 32 * warps), tl.arange(0, 4)
    lane, piece = thread % 32, thread // 32
    last = tl.cdiv(width, 16) - 1
    begin = ()
    for r in tl.static_range(tiles):
        begin += (tl.minimum(tl.program_id(0) * tiles + r, last).to(tl.int64) * total,)
    if gates:
        for r in tl.static_range(tiles):
            begin += (begin[r] + (last + 1).to(tl.int64) * total,)
    line = weight + (thread * 4)[:, None] + each[None, :]
    own = shared + (piece * 32 + lane // 4 * 4)[:, None] + each[None, :]
    pieces = _words(line, own, begin, 0, total, piece, full, ahead, even)
    token = tl.program_id(1) * 8 * some + lane // 4
    source = x + (token.to(tl.int64) * (depth // 2) + piece * 32 + lane % 4 * 4)[:, None] + each[None, :]
    ys = ()
    for _ in tl.static_range(some * full):
        ys += (tl.zeros([32 * warps, 4], tl.float32),)
    wait(chained)
    step: tl.constexpr = ahead * warps
    at = 0
    for _ in range(0, total - step, step):
        coming = _words(line, own, begin, at + step, total, piece, full, ahead, even)
        ys = _terms(ys, pieces, source, token, at, piece, n, depth, kind, full, ahead, some, even, packs)
        pieces = coming
        at += step
    ys = _terms(ys, pieces, source, token, at, piece, n, depth, kind, full, ahead, some, even, packs)
    start(chained)
    row = tl.arange(0, 32)[:, None] // 4 + each[None, :] // 2 * 8
    size = (tl.where(each < 2, 1.0, 1 / 16) / unit(kind, packs))[None, :]
    for s in tl.static_range(some):
        token = (tl.program_id(1) * some + s) * 8 + tl.arange(0, 32)[:, None] % 4 * 2 + each[None, :] % 2
        for r in tl.static_range(tiles):
            column = (tl.program_id(0) * tiles + r) * 16 + row
            y = tl.sum(tl.reshape(ys[s * full + r], [warps, 32, 4]), 0) * size
            exists = (column < width) & (token < n)
            spot = token.to(tl.int64) * width + column
            if gates:
                u = tl.sum(tl.reshape(ys[s * full + tiles + r], [warps, 32, 4]), 0) * size
                y = gated(y, u, bias, column, width, column < width, kind, has_bias, silu)
            else:
                more = y
                if adds:
                    more = tl.load(residual + spot, mask=exists, other=0.0).to(tl.float32)
                y = finish(y, bias, more, column, exists, kind, has_bias, adds)
            tl.store(out + spot, y.to(kind), mask=exists)


def product(
    x: Tensor,
    weight: Tensor,
    shared: Tensor,
    bias: Tensor | None = None,
    *,
    width: int,
    residual: Tensor | None = None,
    activation: str | None = None,
    cut: Share | None = None,
) -> Tensor:
    """y = x·Wᵀ + b for x [n, in] in 16 bits and W of 4; `residual` and `activation` as `kernel.linear` takes them.

    weight is int32 [out / 16, in / 64, 32, 4], shared float16 [out / 16, in / 64, 8, 8], as `fragments.four` takes the
    words of 32 threads, and of 8 for what is shared; filled up with zeros. W has `width` rows, or of a gated product
    twice as many. A token's bits do not depend on how many there are.
    Cost: the stored bytes once for every 32 tokens; one launch, or two if a gated product is no whole tiles.
    """
    (n, depth), (_, total) = x.shape, weight.shape[:2]
    if activation is not None and width % LINES:
        return gate(product(x, weight, shared, bias, width=2 * width, cut=cut), activation)
    out = torch.empty(n, width, dtype=x.dtype, device=x.device)
    gates, chain = activation is not None, chained()
    cut = cut or share_for(width, n, gates)
    some = min(MOST_TOKENS, triton.next_power_of_2(max(n, 8))) // 8
    b, r = (out if given is None else given for given in (bias, residual))
    each = cut.ahead * cut.warps
    even = depth == total * PIECE and total % each == 0
    _product[(triton.cdiv(width, LINES * cut.tiles), triton.cdiv(n, 8 * some))](
        x.view(torch.int32), weight, shared.view(torch.int32), b, r, out, n, width, depth, total,
        kind=tl.float16 if x.dtype == torch.float16 else tl.bfloat16,
        tiles=cut.tiles, some=some, warps=cut.warps, ahead=cut.ahead, gates=gates, silu=activation == SILU,
        has_bias=bias is not None, adds=residual is not None, even=even,
        packs=x.is_cuda, num_warps=cut.warps, num_stages=1, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out
