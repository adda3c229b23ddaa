"""A matrix of 4- or 8-bit weights times few tokens: stored as tensor cores take them, masked on their way there.

Warps of a program share every sum, so that a small matrix too keeps all of the memory busy. What a warp reads next is
always on its way while it multiplies what it has, the first of it already while the kernel before ends.
"""
# mypy: disable-error-code="assignment, var-annotated"
# Tuples of tensors grow while Triton unrolls a loop.

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .alone import BLOCK, one_token
from .draft_chain import chained, start, wait
from .epilogue import finish, gated
from .fragments import eight, enlarged, four, offset, sums, unit
from .gate import SILU, gate
from .spread import met_eight, met_four, spread_eight, spread_four

GROUP = 32  # weights that share a scale and a least
LINES, PIECE = 16, 2 * GROUP  # lines of a tile, and the weights of each that stand together
MOST_TOKENS = 32  # of a program
DEEP = 8192  # terms of a sum from which on more warps share it
LONG = 6144  # results from which on there are programs enough for fewer warps
WORDS = {4: 160, 8: 256}  # of a piece: 4-bit weights and what their groups share, or weights of 8 bits


@dataclass(frozen=True)
class Split:
    """How a product is cut: `warps` of a program share its sums, each has `ahead` pieces on their way.

    A program has `tiles` of 16 results, or of a gated product twice as many. A token's bits depend on the warps alone.
    """

    warps: int = 8
    ahead: int = 4
    tiles: int = 1


def share_for(width: int, n: int, gated: bool, bits: int = 4) -> Split:
    """The cut for results [n, width], as measured on an H200; the warps that share a sum are as many for any n."""
    if gated:
        return Split(4, 1 if n <= 8 or bits == 8 else 2)
    warps = 4 if width >= LONG else 8
    return Split(warps, 4 if n <= 8 else 2 if warps == 4 else 1)


def alone_for(depth: int, gated: bool) -> Split:
    """The cut for one token, as measured on an H200; `ahead` are blocks of 256 numbers then."""
    return Split(2 if gated else 16 if depth >= DEEP else 8, 1)


@triton.jit
def _words(lines, others, at, total, piece, size: tl.constexpr, even: tl.constexpr):
    """A piece of every warp: both parts of it, of every tile."""
    words = ()
    for r in tl.static_range(len(lines)):
        if even:
            words += (tl.load(lines[r] + at * size, eviction_policy="evict_first"),)
            words += (tl.load(others[r] + at * size, eviction_policy="evict_first"),)
        else:
            here = (piece + at < total)[:, None]
            words += (tl.load(lines[r] + at * size, mask=here, other=0, eviction_policy="evict_first"),)
            words += (tl.load(others[r] + at * size, mask=here, other=0, eviction_policy="evict_first"),)
    return words


@triton.jit
def _tokens(x, token, at, piece, n, depth, some: tl.constexpr, even: tl.constexpr):
    """The numbers of all tokens that meet a piece of every warp: of both groups, 8 tokens at a time."""
    numbers = ()
    for s in tl.static_range(some):
        low = token + 8 * s < n
        high = low
        if not even:
            low, high = low & ((piece + at) * 64 < depth), high & ((piece + at) * 64 + 32 < depth)
        spot = x + (depth * (4 * s) + at * 32)
        numbers += (tl.load(spot, mask=low[:, None], other=0), tl.load(spot + 16, mask=high[:, None], other=0))
    return numbers


@triton.jit
def _factors(scales, at, total, piece, even: tl.constexpr):
    """What a piece of every warp is scaled by, of every tile."""
    found = ()
    for r in tl.static_range(len(scales)):
        here = (piece + at < total)[:, None]
        found += (tl.load(scales[r] + at) if even else tl.load(scales[r] + at, mask=here, other=0.0),)
    return found


@triton.jit
def _terms(
    ys, words, numbers, factors, kind: tl.constexpr, bits: tl.constexpr, zeros: tl.constexpr, floats: tl.constexpr,
    tiles: tl.constexpr, some: tl.constexpr, packs: tl.constexpr,
):  # fmt: skip
    """All sums with the terms of a piece."""
    xs, sums_of, found = (), (), ()
    for s in tl.static_range(some):
        a, b = enlarged(numbers[2 * s], kind, packs), enlarged(numbers[2 * s + 1], kind, packs)
        xs += (a, b)
        if bits == 4:
            sums_of += (sums(a, kind, packs), sums(b, kind, packs))
        elif floats:
            sums_of += (tl.zeros(a.shape, tl.float32), a)
        else:
            sums_of += (offset(a, b, kind, packs), a)
    for r in tl.static_range(tiles):
        first, second = words[2 * r], words[2 * r + 1]
        whole = ()
        if packs and some > 1 and bits == 4:  # once for all tokens
            whole = spread_four(first, second)
        elif packs and some > 1:
            whole = spread_eight(first, second, kind, floats)
        for s in tl.static_range(some):
            y, a, b, c = ys[s * tiles + r], xs[2 * s], xs[2 * s + 1], sums_of[2 * s]
            into = y
            if len(factors) > 0:  # a block's sum by itself
                into = tl.zeros(y.shape, tl.float32)
            if bits == 4 and packs and some > 1:
                own = met_four(into, whole, a, b, c, sums_of[2 * s + 1], kind, zeros)
            elif bits == 4:
                own = four(into, first, second, a, b, c, sums_of[2 * s + 1], kind, zeros, packs)
            elif packs and some > 1:
                own = met_eight(into, whole, a, b, c, kind)
            else:
                own = eight(into, first, second, a, b, c, kind, packs, floats)
            if len(factors) > 0:
                own = tl.fma(own, tl.broadcast_to(factors[r], own.shape), y)
            found += (own,)
    after = ()
    for s in tl.static_range(some):
        for r in tl.static_range(tiles):
            after += (found[r * some + s],)
    return after


@triton.jit(do_not_specialize=("n",))
def _product(
    x, weight, scale, bias, residual, out, n, width, depth, total,
    kind: tl.constexpr, bits: tl.constexpr, zeros: tl.constexpr, size: tl.constexpr,
    tiles: tl.constexpr, some: tl.constexpr, warps: tl.constexpr,
    ahead: tl.constexpr, gates: tl.constexpr, silu: tl.constexpr,
    has_bias: tl.constexpr, adds: tl.constexpr, even: tl.constexpr, packs: tl.constexpr,
    floats: tl.constexpr, blocks: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """`tiles` of 16 results for 8·some tokens by one program."""
    full: tl.constexpr = 2 * tiles if gates else tiles
    thread, each = tl.arange(0, 32 * warps), tl.arange(0, 4)
    lane, piece = thread % 32, thread // 32
    last = tl.cdiv(width, 16) - 1
    share = lane * 4 if bits == 8 else lane // 4 * 4
    lines, others, scales = (), (), ()
    for half in tl.static_range(2 if gates else 1):
        for r in tl.static_range(tiles):
            tile = tl.minimum(tl.program_id(0) * tiles + r, last) + half * (last + 1)
            if blocks:
                scales += (scale + (tile.to(tl.int64) * total + piece)[:, None],)
            place = weight + ((tile.to(tl.int64) * total + piece) * size)[:, None] + each[None, :]
            lines += (place + (lane * 4)[:, None],)
            others += (place + (share + 128)[:, None],)
    waiting, factors = (), ()
    for i in tl.static_range(ahead):
        waiting += (_words(lines, others, i * warps, total, piece, size, even),)
        factors += (_factors(scales, i * warps, total, piece, even),)
    token = tl.program_id(1) * 8 * some + lane // 4
    source = x + (token.to(tl.int64) * (depth // 2) + piece * 32 + lane % 4 * 4)[:, None] + each[None, :]
    ys = ()
    for _ in tl.static_range(some * full):
        ys += (tl.zeros([32 * warps, 4], tl.float32),)
    wait(chained)
    given = ()
    for i in tl.static_range(ahead):
        given += (_tokens(source, token, i * warps, piece, n, depth, some, even),)
    step: tl.constexpr = ahead * warps
    at = step
    for _ in range(0, total - step, step):
        coming, later, parts = (), (), ()
        for i in tl.static_range(ahead):
            ys = _terms(ys, waiting[i], given[i], factors[i], kind, bits, zeros, floats, full, some, packs)
            coming += (_words(lines, others, at + i * warps, total, piece, size, even),)
            parts += (_factors(scales, at + i * warps, total, piece, even),)
            later += (_tokens(source, token, at + i * warps, piece, n, depth, some, even),)
        waiting, given, factors = coming, later, parts
        at += step
    for i in tl.static_range(ahead):
        ys = _terms(ys, waiting[i], given[i], factors[i], kind, bits, zeros, floats, full, some, packs)
    start(chained)
    spread = tl.arange(0, 32)[:, None]
    row = spread // 4 + each[None, :] // 2 * 8
    one = tl.where(each < 2, 1.0, 1.0 if bits == 8 else 1 / 16)[None, :] / unit(kind, packs, floats)
    for s in tl.static_range(some):
        token = (tl.program_id(1) * some + s) * 8 + spread % 4 * 2 + each[None, :] % 2
        for r in tl.static_range(tiles):
            column = (tl.program_id(0) * tiles + r) * 16 + row
            y = tl.sum(tl.reshape(ys[s * full + r], [warps, 32, 4]), 0) * one
            exists = (column < width) & (token < n)
            if bits == 8 and not blocks:
                y *= tl.load(scale + column, mask=column < width, other=0.0)
            spot = token.to(tl.int64) * width + column
            if gates:
                u = tl.sum(tl.reshape(ys[s * full + tiles + r], [warps, 32, 4]), 0) * one
                if bits == 8 and not blocks:
                    u *= tl.load(scale + width + column, mask=column < width, other=0.0)
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
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    width: int,
    residual: Tensor | None = None,
    activation: str | None = None,
    zeros: bool = False,
    floats: bool = False,
    cut: Split | None = None,
) -> Tensor:
    """y = x·Wᵀ + b for x [n, in] in 16 bits and W of 4 or 8; `residual` and `activation` as `kernel.linear` takes them.

    weight is int32 [out / 16, in / 64, words], filled up with zeros. Of 4 bits a piece has 160 words: 128 of weights,
    as `fragments.four` takes those of 32 threads, and 32 of what is shared, for 8: scales, and leasts or `zeros`. Of 8
    bits it has 256, as `fragments.eight` takes them, and the matrix a `scale` in float32 for each row [out], or of
    `floats` maybe for each piece [out / 16, in / 64]. W has `width` rows, twice as many if it is gated. A token's
    bits do not depend on how many there are, but for one alone of weights of 4 bits whose numbers are whole blocks
    (`alone.one_token`).
    Cost: the stored bytes once for every 32 tokens; one launch, or two if a gated product is no whole tiles.
    """
    (n, depth), (_, total, size) = x.shape, weight.shape
    if activation is not None and width % LINES:
        both = product(x, weight, scale, bias, width=2 * width, zeros=zeros, floats=floats, cut=cut)
        return gate(both, activation)
    out = torch.empty(n, width, dtype=x.dtype, device=x.device)
    gates, chain = activation is not None, chained()
    around = {
        "zeros": zeros, "size": size, "gates": gates, "silu": activation == SILU, "has_bias": bias is not None,
        "adds": residual is not None, "packs": x.is_cuda,
        "kind": tl.float16 if x.dtype == torch.float16 else tl.bfloat16,
        "num_stages": 1, "chained": chain, "launch_pdl": chain,
    }  # fmt: skip
    if n == 1 and scale is None and depth == total * PIECE and total % BLOCK == 0:
        cut = cut or alone_for(depth, gates)
        one_token[(triton.cdiv(width, LINES),)](
            x.view(torch.int32), weight, *(out if given is None else given for given in (bias, residual)), out,
            width, total // BLOCK, warps=cut.warps, ahead=cut.ahead,
            even=total % (BLOCK * cut.warps * cut.ahead) == 0, num_warps=cut.warps, **around,
        )  # fmt: skip
        return out
    cut = cut or share_for(width, n, gates, 4 if scale is None else 8)
    some = min(MOST_TOKENS, triton.next_power_of_2(max(n, 8))) // 8
    s, b, r = (out if given is None else given for given in (scale, bias, residual))
    each = cut.ahead * cut.warps
    even = depth == total * PIECE and total % each == 0
    _product[(triton.cdiv(width, LINES * cut.tiles), triton.cdiv(n, 8 * some))](
        x.view(torch.int32), weight, s, b, r, out, n, width, depth, total,
        bits=4 if scale is None else 8, floats=floats, blocks=scale is not None and scale.dim() == 2,
        tiles=cut.tiles, some=some, warps=cut.warps, ahead=cut.ahead, even=even, num_warps=cut.warps, **around,
    )  # fmt: skip
    return out
