"""A matrix times one or few tokens on tensor cores, with the bits that each token has among many.

A sum is cut into pieces of `step` terms, each summed by tensor cores, and these sums are added up in order: that is
`Tile.apart`. Few tokens would leave those cores idle but for some rows, waiting for one long chain of sums. Here rows
are pieces: all pieces of a line of weights meet all pieces of every token in one short product, whose diagonal is kept.
Of more than a few tokens each program has some; their weights are read once from memory, and then from the cache.
"""

import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .epilogue import finish, gated, widened
from .gate import SILU
from .norm import scaled, squares
from .rope import RopeTurn, put, sides, turned
from .tile import Tile

LEAST = 16  # rows and columns of a product on tensor cores


@triton.jit
def in_order(terms, pieces: tl.constexpr):
    """The sums over the first `pieces` of the middle axis of [n, m, t], one after the other."""
    piece = tl.arange(0, terms.shape[1])[None, :, None]
    total = tl.zeros([terms.shape[0], terms.shape[2]], tl.float32)
    for i in tl.static_range(pieces):
        total += tl.sum(tl.where(piece == i, terms, 0.0), 1)  # of which one is not zero
    return total


@triton.jit
def _few_tokens(
    x, weight, scale, bias, norm, residual, out, cos, sin, places, slots, keys, values,
    n, width, depth, eps, kv_stride, slot_stride,
    block: tl.constexpr, step: tl.constexpr, tokens: tl.constexpr, pieces: tl.constexpr, lanes: tl.constexpr,
    wide: tl.constexpr, normed: tl.constexpr, gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr,
    adds: tl.constexpr, scaling: tl.constexpr, turns: tl.constexpr, heads: tl.constexpr, kv_heads: tl.constexpr,
    head_width: tl.constexpr, pairs: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """`block` results of `tokens` by one program; those of a gated product have two lines of weights each.

    If it `turns`, results are pairs of a head's numbers, and `width` is the number of pairs.
    """
    start(chained)  # at once: programs are small, so that those of the next kernels have their weights by then
    kind = x.dtype.element_ty
    halves: tl.constexpr = 2 if gates or turns else 1
    line, lane = tl.arange(0, block * halves * lanes), tl.arange(0, step)
    result, piece = line // lanes, line % lanes
    column = tl.program_id(0) * block + result // halves
    place = piece[:, None] * step + lane[None, :]
    row = column + result % halves * width
    if turns:
        left, right = sides(column % (head_width // 2), head_width, pairs)
        row = column // (head_width // 2) * head_width + tl.where(result % 2 == 0, left, right)
    # The weights are on their way, up to where they are multiplied, while the kernel before ends.
    here = (column < width)[:, None] & (place < depth)
    w = tl.load(weight + row.to(tl.int64)[:, None] * depth + place, mask=here, other=0.0, eviction_policy="evict_first")
    if w.dtype != kind:
        w = widened(w).to(kind)
    begin = tl.program_id(1) * tokens
    other, token = tl.arange(0, wide) // tokens, begin + tl.arange(0, wide) % tokens
    at = other[None, :] * step + lane[:, None]
    factor = 1.0
    if normed:
        factor = tl.load(norm + at, mask=at < depth, other=0.0).to(tl.float32)
    own, each = tl.program_id(0) * block + tl.arange(0, block)[:, None], begin + tl.arange(0, tokens)[None, :]
    exists, spot = (own < width) & (each < n), each * width + own
    if turns:  # places and slots were there before the kernel before began
        pair = own % (head_width // 2)
        place = tl.load(places + each, mask=each < n, other=0).to(tl.int64) * pairs + pair
        c = tl.load(cos + place, mask=exists & (pair < pairs), other=1.0)
        s = tl.load(sin + place, mask=exists & (pair < pairs), other=0.0)
        slot = tl.load(slots + each, mask=each < n, other=0).to(tl.int64) * slot_stride
    wait(chained)
    given = tl.load(x + token[None, :] * depth + at, mask=(at < depth) & (token < n)[None, :], other=0.0)
    more = spot
    if adds:  # asked for now, it is there when the sums are
        more = tl.load(residual + spot, mask=exists, other=0.0)
    if normed:
        if tokens == 1:
            square = tl.sum(squares(given))
        else:
            sums = tl.sum(tl.reshape(tl.sum(squares(given), 0), [wide // tokens, tokens]), 0)
            square = tl.reshape(tl.broadcast_to(sums[None, :], [wide // tokens, tokens]), [wide])[None, :]
        given = scaled(given, square, factor, depth, eps)
    met = tl.where(other[None, :] == piece[:, None], tl.dot(w, given, input_precision="ieee"), 0.0)
    mine = tl.sum(tl.reshape(met, [block * halves * lanes, wide // tokens, tokens]), 1)  # a piece has met its own once
    y = in_order(tl.reshape(mine, [block * halves, lanes, tokens]), pieces)
    if turns:
        g, u = tl.split(tl.permute(tl.reshape(y, [block, 2, tokens]), (0, 2, 1)))
        head = own // (head_width // 2)
        left, right = sides(pair, head_width, pairs)
        a = finish(g, bias, g, head * head_width + left, own < width, kind, has_bias, False)
        b = finish(u, bias, u, head * head_width + right, own < width, kind, has_bias, False)
        p, q = turned(a, b, c, s, kind)
        put(out, keys, values, p, q, a.to(kind), b.to(kind), head, left, right, each, slot, kv_stride, exists,
            heads, kv_heads, head_width)  # fmt: skip
    else:
        if gates:
            g, u = tl.split(tl.permute(tl.reshape(y, [block, 2, tokens]), (0, 2, 1)))
            if scaling:
                g *= tl.load(scale + own, mask=own < width, other=0.0)
                u *= tl.load(scale + width + own, mask=own < width, other=0.0)
            y = gated(g, u, bias, own, width, own < width, kind, has_bias, silu)
        else:
            if scaling:
                y *= tl.load(scale + own, mask=own < width, other=0.0)
            y = finish(y, bias, more, own, exists, kind, has_bias, adds)
        tl.store(out + spot, y.to(out.dtype.element_ty), mask=exists)


def few_tokens(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    norm: Tensor | None,
    eps: float,
    residual: Tensor | None,
    activation: str | None,
    out: Tensor,
    cut: Tile,
    turn: RopeTurn | None = None,
) -> Tensor:
    """`linear` of few tokens x [n, in], into `out`; the bits are those of tiles that sum the same steps apart.

    With a `turn`, results are heads, and `out` has the turned queries; keys and values go to their slots.
    """
    (n, depth), width, block = x.shape, out.shape[1], cut.block
    heads = kv_heads = head_width = pairs = kv_stride = slot_stride = 0
    cos = sin = places = slots = keys = values = x
    if turn is not None:
        cos, sin, places, slots, keys, values = turn[:6]
        (kv_heads, _, head_width), width, block = keys.shape, len(weight) // 2, max(1, block // 2)
        heads, pairs, kv_stride, slot_stride = out.shape[1], cos.shape[1], keys.stride(0), keys.stride(1)
    pieces, tokens = triton.cdiv(depth, cut.step), triton.next_power_of_2(min(n, cut.rows))
    lanes = triton.next_power_of_2(pieces)
    chain = chained()
    s, b, f, r = (x if given is None else given for given in (scale, bias, norm, residual))
    _few_tokens[(triton.cdiv(width, block), triton.cdiv(n, tokens))](
        x, weight, s, b, f, r, out, cos, sin, places, slots, keys, values,
        n, width, depth, eps, kv_stride, slot_stride,
        block=block, step=cut.step, tokens=tokens, pieces=pieces, lanes=lanes, wide=max(LEAST, lanes * tokens),
        normed=norm is not None, gates=activation is not None, silu=activation == SILU, has_bias=bias is not None,
        adds=residual is not None, scaling=scale is not None, turns=turn is not None, heads=heads, kv_heads=kv_heads,
        head_width=head_width, pairs=pairs, num_warps=cut.warps, num_stages=1,
        chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out
