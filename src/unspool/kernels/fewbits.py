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
from .fragments import eight, enlarged, four, scaled, squares, sums, unit
from .fragments_load import places_of, row_of, tokens_of, weights_of
from .gate import SILU, gate
from .norm import rms

GROUP = 32  # weights of 4 bits that share a scale and a least
LINES, PIECE = 16, 64  # results of a tile, and weights of each of its lines that a warp takes at a time
MOST_TOKENS = 32  # of a program
NORMED = 8  # tokens up to which every program norms them anew
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
def _terms(
    found, pieces, tokens, kind: tl.constexpr, bits: tl.constexpr, full: tl.constexpr, some: tl.constexpr,
    warps: tl.constexpr, normed: tl.constexpr, packs: tl.constexpr,
):  # fmt: skip
    """Add the terms of a piece to all sums; behind them stand, for 8 bits, tokens' own sums, and squares for a norm."""
    none = tl.zeros([32 * warps, 4], tl.float32)
    after, totals = (), ()
    for s in tl.static_range(some):
        low, high = tokens[2 * s], tokens[2 * s + 1]
        if normed:  # squares are of tokens as they came
            last = squares(
                squares(found[some * full + (some if bits == 8 else 0)], low, kind, packs), high, kind, packs
            )
            low, high = scaled(low, tokens[2 * some], kind, packs), scaled(high, tokens[2 * some + 1], kind, packs)
        low, high = enlarged(low, kind, bits == 8, packs), enlarged(high, kind, bits == 8, packs)
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
    if normed:
        totals += (last,)
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
    found, tile, scale, bias, residual, out, n, width, depth, eps, kind: tl.constexpr, bits: tl.constexpr,
    tiles: tl.constexpr, some: tl.constexpr, warps: tl.constexpr, normed: tl.constexpr, gates: tl.constexpr,
    silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr, packs: tl.constexpr,
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
    column = row_of(tile * tiles + number % tiles, width, bits) + lane // 4 + each // 2 * 8
    token = (tl.program_id(1) * some + number // tiles) * 8 + lane % 4 * 2 + each % 2
    inside = column < width
    exists, spot = inside & (token < n), token.to(tl.int64) * width + column
    size = 1 / unit(kind, packs) * tl.where(each < 2, 1.0, 1.0 if bits == 8 else 1 / 16)
    if normed:  # of tokens 2·t and 2·t + 1
        square = found[some * full + (some if bits == 8 else 0)]
        square = tl.reshape(square, [warps, 8, 4, 2, 2])
        own = tl.arange(0, 8)[:, None, None] == 2 * tl.arange(0, 4)[None, :, None] + tl.arange(0, 2)[None, None, :]
        square = tl.sum(tl.sum(tl.sum(tl.where(own[None, :, :, None, :], square, 0.0), 3), 0), 0)
        square = tl.broadcast_to(tl.reshape(square, [1, 4, 1, 2]), [8, 4, 2, 2])
        size *= tl.reshape(tl.rsqrt(square / depth + eps), [32, 4, 1])
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
    x, norm, weight, shared, scale, bias, residual, out, n, width, depth, total, eps, kind: tl.constexpr,
    bits: tl.constexpr, tiles: tl.constexpr, some: tl.constexpr, warps: tl.constexpr, ahead: tl.constexpr,
    stages: tl.constexpr, normed: tl.constexpr, gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr,
    adds: tl.constexpr, even: tl.constexpr, packs: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """A program makes `tiles` of 16 results for 8·some tokens, then the next ones, with no pause in what it reads."""
    full: tl.constexpr = 2 * tiles if gates else tiles
    number: tl.constexpr = some * full + (some if bits == 8 else 0) + (1 if normed else 0)
    step: tl.constexpr = ahead * warps
    own, other = places_of(weight, shared, width, depth, bits, warps)
    last = tl.cdiv(width, 16 * tiles)
    steps = tl.cdiv(total, step)
    found = _zeros(number, warps)
    tile, at, own_tile, left = tl.program_id(0), 0, tl.program_id(0), steps
    for now in tl.range(0, tl.cdiv(last - tile, tl.num_programs(0)) * steps, num_stages=stages):
        pieces = ()
        for i in tl.static_range(ahead):
            pieces += weights_of(own, other, tile, at + i * warps, width, depth, total, bits, tiles, full, warps, even)
        wraps = at + step >= total
        tile = tl.where(wraps, tile + tl.num_programs(0), tile)
        at = tl.where(wraps, 0, at + step)
        left -= 1
        begin = awaited((steps - 1 - left) * step, now, chained)
        for i in tl.static_range(ahead):
            tokens = tokens_of(x, norm, begin + i * warps, n, depth, bits, some, warps, normed, even, packs)
            found = _terms(
                found, pieces[2 * full * i : 2 * full * (i + 1)], tokens, kind, bits, full, some, warps, normed, packs
            )
        if left == 0:
            if own_tile + tl.num_programs(0) >= last:
                start(chained)
            _finish(
                found, own_tile, scale, bias, residual, out, n, width, depth, eps, kind, bits, tiles, some, warps,
                normed, gates, silu, has_bias, adds, packs,
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
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    activation: str | None = None,
    cut: Share | None = None,
) -> Tensor:
    """y = x·Wᵀ + b for x [n, in] in 16 bits and W of 4; `norm`, `residual` and `activation` as `linear` has them.

    weight is int32 [out / 16, in / 64, 32, 4], shared float16 [out / 16, in / 64, 8, 8], as `fragments.four` takes the
    words of 32 threads, and of 8 for what is shared; filled up with zeros. There are `width` results.
    A token's bits do not depend on how many there are.
    Cost: the stored bytes once for every 32 tokens; one launch, or two if a gated product is no whole tiles.
    """
    if activation is not None and width % LINES:
        return gate(four_bits(x, weight, shared, bias, width=2 * width, norm=norm, eps=eps, cut=cut), activation)
    total, both = weight.shape[1], shared.view(torch.int32)
    return _launched(4, x, (norm, eps), weight, both, None, bias, width, total, residual, activation, cut)


def eight_bits(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    activation: str | None = None,
    cut: Share | None = None,
) -> Tensor:
    """The same for W = scale·weight with weight int8 [out, in] and scale float32 [out]; `in` is a multiple of 4.

    Cost: the stored bytes once for every 32 tokens; one launch.
    """
    width, depth = weight.shape[0] // 2 if activation else weight.shape[0], weight.shape[1]
    words = weight.view(torch.int32)
    total = -(-depth // PIECE)
    return _launched(8, x, (norm, eps), words, words, scale, bias, width, total, residual, activation, cut)


def _launched(
    bits: int,
    x: Tensor,
    normed: tuple[Tensor | None, float],
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
    (n, depth), (norm, eps) = x.shape, normed
    out = torch.empty(n, width, dtype=x.dtype, device=x.device)
    gates, chain = activation is not None, chained()
    cut = cut or share_for(width, n, gates)
    some = min(MOST_TOKENS, triton.next_power_of_2(max(n, 8))) // 8
    even = depth == total * PIECE and total % (cut.ahead * cut.warps) == 0
    if norm is not None and not (even and n <= NORMED and x.dtype == norm.dtype == torch.bfloat16):
        x, norm = rms(x, norm, eps), None
    words = x.view(torch.int32)
    s, b, r = (out if given is None else given for given in (scale, bias, residual))
    programs = triton.cdiv(width, LINES)
    tiles = 1 if programs % cut.tiles else cut.tiles
    programs = min(programs // tiles, cut.programs * PROCESSORS)
    fitted(
        lambda stages: _product[(programs, triton.cdiv(n, 8 * some))](
            words, words if norm is None else norm.view(torch.int32), weight, shared, s, b, r, out, n, width, depth,
            total, eps,
            kind=tl.float16 if x.dtype == torch.float16 else tl.bfloat16, bits=bits,
            tiles=tiles, some=some, warps=cut.warps, ahead=cut.ahead, stages=stages, normed=norm is not None,
            gates=gates, silu=activation == SILU, has_bias=bias is not None, adds=residual is not None,
            even=even, packs=x.is_cuda, num_warps=cut.warps, num_stages=stages, chained=chain, launch_pdl=chain,
        ),
        cut.stages,
        ("few bits", bits, cut, some, gates, x.dtype),
    )  # fmt: skip
    return out
