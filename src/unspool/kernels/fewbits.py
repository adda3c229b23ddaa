"""A matrix of 4-bit weights times few tokens: they are widened in registers, on their way to the tensor cores.

The warps of a program have the same results and each a share of every sum, so that a small matrix too keeps all of the
memory busy. Tensor cores take a weight as offset + q, which is a matter of bits and no conversion. What the offset adds
to a sum is the sum of the token's own numbers times the offset: it stands there from the start with the other sign.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .epilogue import finish, gated
from .fit import fitted
from .gate import SILU

GROUP = 32  # weights that share a scale and a least
PIECE = 4 * GROUP  # weights of a row that stand together: nibble p of word j, of 32, is number 32·p + j
BLOCK = 16  # results of a program, or twice as many
LONG = 8192  # results from which on there are programs enough for fewer warps
_GROUP, _PIECE = tl.constexpr(GROUP), tl.constexpr(PIECE)
_UNPACK = tl.constexpr(  # for bfloat16 and float16
    tuple(
        f"{{ .reg .b32 t; shr.u32 t, $1, {4 * p}; lop3.b32 $0, t, 0xF000F, 0x{bits}{bits}, 0xEA; }}"
        for bits in ("4300", "6400")
        for p in range(4)
    )
)


@dataclass(frozen=True)
class Share:
    """How a product is cut: `warps` of a program share its sums; `twins`: 32 results of a program instead of 16.

    `tokens` is the most of a program, `stages` are those of its pipeline. A token's bits depend on the warps alone.
    """

    warps: int = 4
    stages: int = 3
    twins: bool = False
    tokens: int = 16


TUNED: dict[tuple[int, int, int, bool], Share] = {}
"""The best cuts as measured on an H200 in bfloat16, by (out, in, 8 or 16 tokens, gated)."""


def share_for(width: int, depth: int, n: int, gated: bool) -> Share:
    """The cut for results [n, width] summed over `depth`; the warps that share a sum are as many for any n."""
    found = TUNED.get((width, depth, 8 if n <= 8 else 16, gated))
    if found is not None:
        return found
    return Share(4 if gated or width >= LONG else 8, twins=not gated)


@triton.jit
def _nibbles(w, p: tl.constexpr, kind: tl.constexpr, offset: tl.constexpr, packs: tl.constexpr):
    """Weight p of each word, of four, plus the offset: of 16 bits two at a time, set into the bits of the offset."""
    if packs and kind == tl.bfloat16:
        return tl.inline_asm_elementwise(_UNPACK[p], "=r,r", [w], dtype=tl.bfloat16, is_pure=True, pack=2)
    if packs and kind == tl.float16:
        return tl.inline_asm_elementwise(_UNPACK[4 + p], "=r,r", [w], dtype=tl.float16, is_pure=True, pack=2)
    return (((w.to(tl.int32) >> (4 * p)) & 15) + offset).to(kind)


@triton.jit
def _one_of(index: tl.constexpr, value: tl.constexpr, other: tl.constexpr, more: tl.constexpr, shape: tl.constexpr):
    """A matrix that takes number `index` of a row `value` times, and number `other` of it `more` times."""
    at = tl.arange(0, 16)
    taken = tl.where(at == index, value, tl.where(at == other, more, 0.0)).to(tl.float16)
    return tl.broadcast_to(taken[None, :, None], shape)


@triton.jit
def _add(y, w, both, part, before, none, p: tl.constexpr, offset: tl.constexpr, packs: tl.constexpr):
    """One group of every row: y + scale·Σ q·x + least·Σ x, of Σ (offset + q)·x and `before`, which is −offset·Σ x.

    Tensor cores bring what a group shares to where it is needed: times a matrix that takes one of its numbers.
    """
    shape: tl.constexpr = (y.shape[0], 16, y.shape[2])
    found = tl.dot(_nibbles(w, p, part.dtype, offset, packs), part, none, input_precision="ieee")
    scale = tl.dot(both, _one_of(p, 1.0, 16, 0.0, shape), none)
    other = tl.dot(both, _one_of(p, 1.0, 4 + p, -1 / offset, shape), none)
    return y + scale * found + other * before


@triton.jit
def _words(source, at, piece, total, even: tl.constexpr):
    if even:
        return tl.load(source)
    return tl.load(source, mask=(at + piece < total)[:, None, None], other=0)


@triton.jit
def _product(
    x, weight, shared, bias, residual, out, n, width, depth, total,
    rows: tl.constexpr, block: tl.constexpr, warps: tl.constexpr, twins: tl.constexpr,
    gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr, even: tl.constexpr,
    packs: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    kind = x.dtype.element_ty
    offset: tl.constexpr = 1024 if kind == tl.float16 else 128 if kind == tl.bfloat16 else 1
    two: tl.constexpr = gates or twins
    full = width * 2 if gates else width
    column = tl.program_id(0) * (2 * block if twins else block) + tl.arange(0, block)
    row, lane, piece = tl.program_id(1) * rows + tl.arange(0, rows), tl.arange(0, _GROUP), tl.arange(0, warps)
    real = (row < n)[None, None, :]
    # What all rows have at one place stands together, so a program reads long lines.
    first = tl.minimum(column, width - 1)
    second = tl.minimum(column + block, width - 1) if twins else first + width
    begin = piece.to(tl.int64)[:, None] * full
    stride = tl.cast(full, tl.int64) * warps
    line = weight + (begin + first[None, :])[:, :, None] * _GROUP + lane[None, None, :]
    other = weight + (begin + second[None, :])[:, :, None] * _GROUP + lane[None, None, :]
    eight = tl.arange(0, 16)
    own = shared + (begin + first[None, :])[:, :, None] * 8 + eight[None, None, :]
    others = shared + (begin + second[None, :])[:, :, None] * 8 + eight[None, None, :]
    source = x + row[None, None, :].to(tl.int64) * depth + lane[None, :, None] + piece[:, None, None] * _PIECE
    y = tl.zeros([warps, block, rows], tl.float32)
    u = tl.zeros([warps, block, rows], tl.float32)
    none = tl.zeros([warps, block, rows], tl.float32)
    flat = tl.where(lane + depth > 0, -offset, 0).to(kind)  # a constant that the compiler keeps in registers
    flat = tl.broadcast_to(flat[None, None, :], [warps, block, _GROUP])
    wait(chained)
    for at in range(0, total, warps):
        known = (eight < 8)[None, None, :]
        if not even:
            known = known & (at + piece < total)[:, None, None]
        w, both = _words(line, at, piece, total, even), tl.load(own, mask=known, other=0.0)
        o, ours = w, both
        if two:
            o, ours = _words(other, at, piece, total, even), tl.load(others, mask=known, other=0.0)
        for p in tl.static_range(4):
            here = real
            if not even:
                here = here & (((at + piece) * _PIECE)[:, None, None] + (lane + _GROUP * p)[None, :, None] < depth)
            part = tl.load(source + _GROUP * p, mask=here, other=0.0)
            before = tl.dot(flat, part, none, input_precision="ieee")
            y = _add(y, w, both, part, before, none, p, offset, packs)
            if two:
                u = _add(u, o, ours, part, before, none, p, offset, packs)
        own, others, source = own + 8 * stride, others + 8 * stride, source + warps * _PIECE
        line, other = line + stride * _GROUP, other + stride * _GROUP
    start(chained)
    g = tl.trans(tl.sum(y, 0))
    if two:
        h = tl.trans(tl.sum(u, 0))
        if gates:
            inside = (column < width)[None, :]
            g = gated(g, h, bias, column[None, :], width, inside, kind, has_bias, silu)
            exists, spot = (row < n)[:, None] & inside, row[:, None].to(tl.int64) * width + column[None, :]
            tl.store(out + spot, g.to(out.dtype.element_ty), mask=exists)
        else:
            _store(h, bias, residual, out, row, column + block, n, width, kind, has_bias, adds)
    if not gates:
        _store(g, bias, residual, out, row, column, n, width, kind, has_bias, adds)


@triton.jit
def _store(
    g, bias, residual, out, row, column, n, width, kind: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr
):
    exists = (row < n)[:, None] & (column < width)[None, :]
    spot = row[:, None].to(tl.int64) * width + column[None, :]
    more = g
    if adds:
        more = tl.load(residual + spot, mask=exists, other=0.0).to(tl.float32)
    g = finish(g, bias, more, column[None, :], exists, kind, has_bias, adds)
    tl.store(out + spot, g.to(out.dtype.element_ty), mask=exists)


def product(
    x: Tensor,
    weight: Tensor,
    shared: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    activation: str | None = None,
    cut: Share | None = None,
) -> Tensor:
    """y = x·Wᵀ + b for x [n, in] and W of 4 bits; `residual` and `activation` as `kernel.linear` takes them.

    weight is int16 [in / 128, out, 32], shared float16 [in / 128, out, 8], the last of them filled up: W is least +
    scale·q, bits 4·p to 4·p + 3 of word j of a piece have its number 32·p + j, four scales come before four leasts.
    A token's bits do not depend on how many there are. Cost: the stored bytes once for every 16 tokens; one launch.
    """
    (n, depth), (total, full, _) = x.shape, weight.shape
    width = full // 2 if activation else full
    out = torch.empty(n, width, dtype=x.dtype, device=x.device)
    cut = cut or share_for(width, depth, n, activation is not None)
    rows = min(cut.tokens, max(8, triton.next_power_of_2(n)))
    gates, twins = activation is not None, cut.twins and activation is None
    b, r = (x if given is None else given for given in (bias, residual))
    even, chain = depth == total * PIECE and total % cut.warps == 0, chained()
    fitted(
        lambda stages: _product[(triton.cdiv(width, 2 * BLOCK if twins else BLOCK), triton.cdiv(n, rows))](
            x, weight, shared, b, r, out, n, width, depth, total,
            rows=rows, block=BLOCK, warps=cut.warps, twins=twins, gates=gates, silu=activation == SILU,
            has_bias=bias is not None, adds=residual is not None, even=even,
            packs=x.is_cuda, num_warps=cut.warps, num_stages=stages, chained=chain,
            launch_pdl=chain,
        ),
        cut.stages,
        ("few bits", cut, rows, gates, x.dtype),
    )  # fmt: skip
    return out
