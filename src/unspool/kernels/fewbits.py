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

from .draft_chain import awaited, chained, start
from .epilogue import finish, gated
from .fit import fitted
from .fragments import eight, enlarged, four, quads, sums, unit
from .gate import SILU, gate

GROUP = 32  # weights of 4 bits that share a scale and a least
LINES, PIECE = 16, 64  # results of a tile, and weights of each of its lines that a warp takes at a time
MOST_TOKENS = 32  # of a program
LONG = 6144  # results from which on there are programs enough for fewer warps
PROCESSORS = 132  # of an H200


@dataclass(frozen=True)
class Share:
    """How a product is cut: `warps` of a program share its sums and take `ahead` pieces each at a time.

    A program has `tiles` of 16 results at a time, or of a gated product twice as many; `stages` are those of its
    pipeline, and so many `programs` a processor has at most. A token's bits depend on the warps alone.
    """

    warps: int
    ahead: int = 1
    tiles: int = 1
    stages: int = 4
    programs: int = 4


def share_for(width: int, n: int, gated: bool) -> Share:
    """The cut for results [n, width]; the warps that share a sum are as many for any n.

    With more tokens a program takes more lines of weights at a time: the tokens too must be read.
    """
    warps = 4 if gated or width >= LONG else 8
    return Share(warps, ahead=2) if n <= 8 else Share(warps, tiles=2)


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
    warps: tl.constexpr, even: tl.constexpr,
):  # fmt: skip
    """The piece of every warp from `at` on, tile by tile."""
    thread, each = tl.arange(0, 32 * warps), tl.arange(0, 4)
    here = True
    if not even and bits == 4:
        here = (thread // 32 + at < total)[:, None]
    if not even and bits == 8:
        here = ((thread // 32 + at) * 16 + thread % 4 * 4)[:, None] + each[None, :] < depth // 4
    found = ()
    for r in tl.static_range(full):
        if bits == 4:
            begin = (tile * tiles + (r % tiles + r // tiles * (width // 16))) * tl.cast(total, tl.int64) + at
            found += (tl.load(own + begin * 128, mask=here, other=0), tl.load(other + begin * 32, mask=here, other=0))
        else:
            row = _row(tile * tiles + r % tiles, width, bits) + r // tiles * width
            begin = row * tl.cast(depth // 4, tl.int64) + at * 16
            found += (tl.load(own + begin, mask=here, other=0), tl.load(other + begin, mask=here, other=0))
    return found


@triton.jit
def _tokens(
    x, at, n, depth, bits: tl.constexpr, some: tl.constexpr, warps: tl.constexpr, even: tl.constexpr,
    packs: tl.constexpr,
):  # fmt: skip
    """What the piece of every warp from `at` on multiplies: of every 8 tokens, twice 8 numbers for each thread."""
    thread = tl.arange(0, 32 * warps)
    found = ()
    for s in tl.static_range(some):
        # There may be fewer tokens; what is computed with another one is not stored.
        token = tl.minimum(tl.program_id(1) * 8 * some + thread % 32 // 4 + 8 * s, n - 1)
        word = thread // 32 * 32 + thread % 4 * (8 if bits == 8 else 4)
        place = token * (depth // 2) + word
        for half in tl.static_range(2):
            ahead = at * 32 + half * (4 if bits == 8 else 16)
            found += (quads(x + place + ahead, depth // 2 - word - ahead, even, packs),)
    return found


@triton.jit
def _terms(
    found, pieces, tokens, kind: tl.constexpr, bits: tl.constexpr, full: tl.constexpr, some: tl.constexpr,
    warps: tl.constexpr, packs: tl.constexpr,
):  # fmt: skip
    """Add the terms of a piece to all sums; behind them stand, for 8 bits, tokens' own sums."""
    none = tl.zeros([32 * warps, 4], tl.float32)
    after, totals = (), ()
    for s in tl.static_range(some):
        low, high = (
            enlarged(tokens[2 * s], kind, bits == 8, packs),
            enlarged(tokens[2 * s + 1], kind, bits == 8, packs),
        )
        if bits == 4:
            c, d = sums(none, low, kind, bits, packs), sums(none, high, kind, bits, packs)
        else:
            c = sums(sums(found[some * full + s], low, kind, bits, packs), high, kind, bits, packs)
            totals += (c,)
        for r in tl.static_range(full):
            if bits == 4:
                after += (four(found[s * full + r], pieces[2 * r], pieces[2 * r + 1], low, high, c, d, kind, packs),)
            else:
                after += (eight(found[s * full + r], pieces[2 * r], pieces[2 * r + 1], low, high, kind, packs),)
    return after + totals


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
    adds: tl.constexpr, packs: tl.constexpr,
):  # fmt: skip
    """Add up what the warps have, and store what becomes of it."""
    full: tl.constexpr = 2 * tiles if gates else tiles
    ordered = ()
    for s in tl.static_range(some):
        for r in tl.static_range(full):
            own = found[s * full + (r % 2 * tiles + r // 2 if gates else r)]
            ordered += (own - found[some * full + s] if bits == 8 else own,)
    y = _together(ordered, some * full, warps)
    lane, each = tl.arange(0, 32)[:, None, None], tl.arange(0, 4)[None, :, None]
    number = tl.arange(0, some * tiles)[None, None, :]
    column = _row(tile * tiles + number % tiles, width, bits) + lane // 4 + each // 2 * 8
    token = (tl.program_id(1) * some + number // tiles) * 8 + lane % 4 * 2 + each % 2
    inside = column < width
    exists, spot = inside & (token < n), token.to(tl.int64) * width + column
    size = 1 / unit(kind, packs) * tl.where(each < 2, 1.0, 1.0 if bits == 8 else 1 / 16)
    if gates:
        y, u = tl.split(tl.reshape(y, [32, 4, some * tiles, 2]))
        y, u = y * size, u * size
        if bits == 8:
            y *= tl.load(scale + column, mask=inside, other=0.0)
            u *= tl.load(scale + width + column, mask=inside, other=0.0)
        y = gated(y, u, bias, column, width, inside, kind, has_bias, silu)
    else:
        y *= size
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
    stages: tl.constexpr, gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr,
    even: tl.constexpr, packs: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """A program makes `tiles` of 16 results for 8·some tokens, then the next ones, with no pause in what it reads."""
    full: tl.constexpr = 2 * tiles if gates else tiles
    number: tl.constexpr = some * full + (some if bits == 8 else 0)
    step: tl.constexpr = ahead * warps
    own, other = _places(weight, shared, width, depth, bits, warps)
    last = tl.cdiv(width, 16 * tiles)
    steps = tl.cdiv(total, step)
    found = _zeros(number, warps)
    tile, at, own_tile, left = tl.program_id(0), 0, tl.program_id(0), steps
    for now in tl.range(0, tl.cdiv(last - tile, tl.num_programs(0)) * steps, num_stages=stages):
        pieces = ()
        for i in tl.static_range(ahead):
            pieces += _weights(own, other, tile, at + i * warps, width, depth, total, bits, tiles, full, warps, even)
        wraps = at + step >= total
        tile = tl.where(wraps, tile + tl.num_programs(0), tile)
        at = tl.where(wraps, 0, at + step)
        left -= 1
        begin = awaited((steps - 1 - left) * step, now, chained)
        for i in tl.static_range(ahead):
            tokens = _tokens(x, begin + i * warps, n, depth, bits, some, warps, even, packs)
            found = _terms(
                found, pieces[2 * full * i : 2 * full * (i + 1)], tokens, kind, bits, full, some, warps, packs
            )
        if left == 0:
            if own_tile + tl.num_programs(0) >= last:
                start(chained)
            _finish(
                found, own_tile, scale, bias, residual, out, n, width, kind, bits, tiles, some, warps, gates, silu,
                has_bias, adds, packs,
            )  # fmt: skip
            found = _zeros(number, warps)
            own_tile, left = own_tile + tl.num_programs(0), steps


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
    cut = cut or share_for(width, n, gates)
    some = min(MOST_TOKENS, triton.next_power_of_2(max(n, 8))) // 8
    s, b, r = (out if given is None else given for given in (scale, bias, residual))
    programs = triton.cdiv(width, LINES)
    tiles = 1 if programs % cut.tiles else cut.tiles
    programs = min(programs // tiles, cut.programs * PROCESSORS)
    fitted(
        lambda stages: _product[(programs, triton.cdiv(n, 8 * some))](
            x.view(torch.int32), weight, shared, s, b, r, out, n, width, depth, total,
            kind=tl.float16 if x.dtype == torch.float16 else tl.bfloat16, bits=bits,
            tiles=tiles, some=some, warps=cut.warps, ahead=cut.ahead, stages=stages, gates=gates,
            silu=activation == SILU, has_bias=bias is not None, adds=residual is not None,
            even=depth == total * PIECE and total % (cut.ahead * cut.warps) == 0,
            packs=x.is_cuda, num_warps=cut.warps, num_stages=stages, chained=chain, launch_pdl=chain,
        ),
        cut.stages,
        ("few bits", bits, cut, some, gates, x.dtype),
    )  # fmt: skip
    return out
