"""A matrix of weights of 4 or 8 bits times few tokens: tensor cores take them as they are loaded, masked at most.

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
from .fragments import eight, four, paired, sums
from .gate import SILU, gate

GROUP = 32  # weights of 4 bits that share a scale and a least
LINES, PIECE = 16, 64  # results of a tile, and weights of each of its lines that a warp takes at a time
MOST_TOKENS = 32  # of a program
DEEP = 8192  # terms of a sum from which on more warps share it


@dataclass(frozen=True)
class Share:
    """How a product is cut: `warps` of a program share its sums, and each has `ahead` pieces on their way.

    A program has `tiles` of 16 results, or of a gated product twice as many. A token's bits depend on the warps alone.
    """

    warps: int
    ahead: int = 1
    tiles: int = 1


def share_for(depth: int, n: int, gated: bool) -> Share:
    """The cut for n tokens and sums over `depth`, as measured on an H200; the warps are as many for any n.

    With more tokens a program takes more lines of weights at a time: the tokens too must be read.
    """
    warps = 8 if depth >= DEEP else 4
    if n > 8:
        return Share(warps, tiles=2)
    return Share(warps, 4, 2) if depth >= DEEP else Share(warps, 4 if gated else 8)


@triton.jit
def _places(weight, shared, width, depth, bits: tl.constexpr, warps: tl.constexpr):
    """Where threads begin in the first tile: their weights, and what groups share, or of 8 bits their other lines."""
    thread, each = tl.arange(0, 32 * warps), tl.arange(0, 4)
    lane, piece = thread % 32, thread // 32
    if bits == 4:
        own = weight + (thread * 4)[:, None] + each[None, :]
        other = shared + (piece * 32 + lane // 4 * 4)[:, None] + each[None, :]
    else:
        column = (piece * 16 + lane % 4 * 4)[:, None] + each[None, :]
        own = weight + tl.minimum(lane // 4, width - 1).to(tl.int64)[:, None] * (depth // 4) + column
        other = shared + tl.minimum(lane // 4 + 8, width - 1).to(tl.int64)[:, None] * (depth // 4) + column
    return own, other


@triton.jit
def _row(tile, width, bits: tl.constexpr):
    """The first line of a tile; of lines of 8 bits, which are not filled up, the last tile ends with the last one."""
    return tile * 16 if bits == 4 else tl.maximum(tl.minimum(tile * 16, width - 16), 0)


@triton.jit
def _weights(
    own, other, tile, at, width, depth, total, bits: tl.constexpr, tiles: tl.constexpr, full: tl.constexpr,
    ahead: tl.constexpr, warps: tl.constexpr, even: tl.constexpr,
):  # fmt: skip
    """The next pieces of every warp from `at` on, piece by piece and tile by tile."""
    thread, each = tl.arange(0, 32 * warps), tl.arange(0, 4)
    found = ()
    for i in tl.static_range(ahead):
        piece = thread // 32 + at + i * warps
        here = (piece < total)[:, None]
        if bits == 8:
            here = (piece * 16 + thread % 4 * 4)[:, None] + each[None, :] < depth // 4
        for r in tl.static_range(full):
            if bits == 4:
                begin = (tile * tiles + (r % tiles + r // tiles * (width // 16))) * tl.cast(total, tl.int64)
                begin = begin + at + i * warps
                line, more = own + begin * 128, other + begin * 32
            else:
                row = _row(tile * tiles + r % tiles, width, bits) + r // tiles * width
                begin = row * tl.cast(depth // 4, tl.int64) + at * 16 + i * warps * 16
                line, more = own + begin, other + begin
            if even:
                found += (tl.load(line, eviction_policy="evict_first"),)
                found += (tl.load(more, eviction_policy="evict_first"),)
            else:
                found += (tl.load(line, mask=here, other=0, eviction_policy="evict_first"),)
                found += (tl.load(more, mask=here, other=0, eviction_policy="evict_first"),)
    return found


@triton.jit
def _token(x, word, token, n, depth, even: tl.constexpr):
    """Eight numbers of the token of every thread, two a word."""
    each = tl.arange(0, 4)[None, :]
    here = (token < n)[:, None]
    if not even:
        here = here & (word[:, None] + each < depth // 2)
    return tl.load(x + (token.to(tl.int64) * (depth // 2) + word)[:, None] + each, mask=here, other=0)


@triton.jit
def _terms(
    found, pieces, x, at, n, depth, kind: tl.constexpr, bits: tl.constexpr, full: tl.constexpr, ahead: tl.constexpr,
    some: tl.constexpr, warps: tl.constexpr, even: tl.constexpr, packs: tl.constexpr,
):  # fmt: skip
    """Add the terms of the pieces that are there to all sums, piece by piece."""
    thread = tl.arange(0, 32 * warps)
    none = tl.zeros([32 * warps, 4], tl.float32)
    for i in tl.static_range(ahead):
        word = (thread // 32 + at + i * warps) * 32 + thread % 4 * (8 if bits == 8 else 4)
        after = ()
        for s in tl.static_range(some):
            token = tl.program_id(1) * 8 * some + thread % 32 // 4 + 8 * s
            low = _token(x, word, token, n, depth, even)
            high = _token(x, word + (4 if bits == 8 else 16), token, n, depth, even)
            if bits == 4:
                c, d = sums(none, low, kind, packs), sums(none, high, kind, packs)
            else:
                low, high = paired(low, packs), paired(high, packs)
                c = sums(sums(none, low, kind, packs), high, kind, packs)
            for r in tl.static_range(full):
                y, w, more = found[s * full + r], pieces[2 * (i * full + r)], pieces[2 * (i * full + r) + 1]
                if bits == 4:
                    after += (four(y, w, more, low, high, c, d, kind, packs),)
                else:
                    after += (eight(y, w, more, low, high, c, kind, packs),)
        found = after
    return found


@triton.jit
def _zeros(number: tl.constexpr, warps: tl.constexpr):
    found = ()
    for _ in tl.static_range(number):
        found += (tl.zeros([32 * warps, 4], tl.float32),)
    return found


@triton.jit
def _together(found, number: tl.constexpr, warps: tl.constexpr):
    """The sums of all warps [32, 4, number]."""
    for level in tl.static_range(6):
        if (number >> level) > 1:
            pairs = ()
            for i in tl.static_range(number >> (level + 1)):
                pairs += (tl.join(found[i], found[i + (number >> (level + 1))]),)
            found = pairs
    return tl.sum(tl.reshape(found[0], [warps, 32, 4, number]), 0)


@triton.jit
def _finish(
    found, tile, scale, bias, residual, out, n, width, kind: tl.constexpr, bits: tl.constexpr, tiles: tl.constexpr,
    some: tl.constexpr, warps: tl.constexpr, gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr,
    adds: tl.constexpr,
):  # fmt: skip
    """Add up what the warps have, and store what becomes of it."""
    full: tl.constexpr = 2 * tiles if gates else tiles
    ordered = ()
    for s in tl.static_range(some):
        for r in tl.static_range(full):
            ordered += (found[s * full + (r % 2 * tiles + r // 2 if gates else r)],)
    y = _together(ordered, some * full, warps)
    lane, each = tl.arange(0, 32)[:, None, None], tl.arange(0, 4)[None, :, None]
    number = tl.arange(0, some * tiles)[None, None, :]
    column = _row(tile * tiles + number % tiles, width, bits) + lane // 4 + each // 2 * 8
    token = (tl.program_id(1) * some + number // tiles) * 8 + lane % 4 * 2 + each % 2
    inside = column < width
    exists, spot = inside & (token < n), token.to(tl.int64) * width + column
    if gates:
        y, u = tl.split(tl.reshape(y, [32, 4, some * tiles, 2]))
        if bits == 8:
            y *= tl.load(scale + column, mask=inside, other=0.0)
            u *= tl.load(scale + width + column, mask=inside, other=0.0)
        y = gated(y, u, bias, column, width, inside, kind, has_bias, silu)
    else:
        if bits == 8:
            y *= tl.load(scale + column, mask=inside, other=0.0)
        more = y
        if adds:
            more = tl.load(residual + spot, mask=exists, other=0.0)
        y = finish(y, bias, more, column, exists, kind, has_bias, adds)
    tl.store(out + spot, y.to(kind), mask=exists)


@triton.jit
def _product(
    x, weight, shared, scale, bias, residual, out, n, width, depth, total, kind: tl.constexpr, bits: tl.constexpr,
    tiles: tl.constexpr, some: tl.constexpr, warps: tl.constexpr, ahead: tl.constexpr,
    gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr,
    even: tl.constexpr, packs: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """A program makes `tiles` of 16 results, or twice as many, for 8·some tokens."""
    full: tl.constexpr = 2 * tiles if gates else tiles
    step: tl.constexpr = ahead * warps
    own, other = _places(weight, shared, width, depth, bits, warps)
    tile = tl.program_id(0)
    pieces = _weights(own, other, tile, 0, width, depth, total, bits, tiles, full, ahead, warps, even)
    found = _zeros(some * full, warps)
    wait(chained)
    at = 0
    for _ in range(0, total - step, step):
        coming = _weights(own, other, tile, at + step, width, depth, total, bits, tiles, full, ahead, warps, even)
        found = _terms(found, pieces, x, at, n, depth, kind, bits, full, ahead, some, warps, even, packs)
        pieces = coming
        at += step
    found = _terms(found, pieces, x, at, n, depth, kind, bits, full, ahead, some, warps, even, packs)
    start(chained)
    _finish(
        found, tile, scale, bias, residual, out, n, width, kind, bits, tiles, some, warps, gates, silu, has_bias, adds,
    )  # fmt: skip


def four_bits(
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
    words of 32 threads, and of 8 for what is shared; filled up with zeros. There are `width` results.
    A token's bits do not depend on how many there are.
    Cost: the stored bytes once for every 32 tokens; one launch, or two if a gated product is no whole tiles.
    """
    if activation is not None and width % LINES:
        return gate(four_bits(x, weight, shared, bias, width=2 * width, cut=cut), activation)
    total, both = weight.shape[1], shared.view(torch.int32)
    return _launched(4, x, weight, both, None, bias, width, total, residual, activation, cut)


def eight_bits(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    activation: str | None = None,
    cut: Share | None = None,
) -> Tensor:
    """The same for W = scale·weight with weight int8 [out, in] and scale float32 [out]; `in` is a multiple of 4.

    Cost: the stored bytes once for every 32 tokens; one launch.
    """
    width, depth = weight.shape[0] // 2 if activation else weight.shape[0], weight.shape[1]
    words = weight.view(torch.int32)
    return _launched(8, x, words, words, scale, bias, width, -(-depth // PIECE), residual, activation, cut)


def _launched(
    bits: int,
    x: Tensor,
    weight: Tensor,
    shared: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    width: int,
    total: int,
    residual: Tensor | None,
    activation: str | None,
    cut: Share | None,
) -> Tensor:
    n, depth = x.shape
    out = torch.empty(n, width, dtype=x.dtype, device=x.device)
    gates, chain = activation is not None, chained()
    cut = cut or share_for(depth, n, gates)
    some = min(MOST_TOKENS, triton.next_power_of_2(max(n, 8))) // 8
    s, b, r = (out if given is None else given for given in (scale, bias, residual))
    programs = triton.cdiv(width, LINES)
    tiles = 1 if programs % cut.tiles else cut.tiles
    _product[(programs // tiles, triton.cdiv(n, 8 * some))](
        x.view(torch.int32), weight, shared, s, b, r, out, n, width, depth, total,
        kind=tl.float16 if x.dtype == torch.float16 else tl.bfloat16, bits=bits,
        tiles=tiles, some=some, warps=cut.warps, ahead=cut.ahead, gates=gates, silu=activation == SILU,
        has_bias=bias is not None, adds=residual is not None,
        even=depth == total * PIECE and total % (cut.ahead * cut.warps) == 0,
        packs=x.is_cuda, num_warps=cut.warps, num_stages=1, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out
