"""Products of many matrices, each with the rows that are its own: experts with the tokens that chose them."""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .fit import fitted
from .gate import bend
from .linear import summed

NONE, SILU, GELU, CLAMPED, SQUARED = range(5)
ACTIVATIONS = {None: NONE, "silu": SILU, "gelu_tanh": GELU, "clamped_swish": CLAMPED, "relu2": SQUARED}
_SILU, _GELU, _CLAMPED, _SQUARED = (tl.constexpr(code) for code in (SILU, GELU, CLAMPED, SQUARED))
MANY = 32  # rows per matrix from which on tiles are high


class GroupedTile(NamedTuple):
    """How a grouped product is cut: rows and results of a program, numbers of a row at a time, warps and stages."""

    rows: int
    block: int
    step: int
    warps: int = 4
    stages: int = 4


CUTS = (
    GroupedTile(16, 64, 128),
    GroupedTile(16, 64, 64, stages=6),
    GroupedTile(16, 32, 128),
    GroupedTile(16, 32, 256, stages=3),
    GroupedTile(16, 16, 256, warps=2),
    GroupedTile(16, 128, 64, warps=8),
    GroupedTile(16, 64, 128, warps=2, stages=3),
)
"""Those worth trying for few tokens, the best on an H200 first (bench/mixture.py --only products)."""


@triton.jit
def _bent(y, z, activation: tl.constexpr, kind: tl.constexpr):
    """What an activation makes of a gate and what it lets through, each step rounded as if it had been written out."""
    y, z = y.to(kind).to(tl.float32), z.to(kind).to(tl.float32)
    if activation == _CLAMPED:  # gpt-oss: g·sigmoid(1.702·g)·(u + 1), g at most 7, u from −7 to 7
        y, z = tl.minimum(y, 7.0), tl.minimum(tl.maximum(z, -7.0), 7.0)
        y = (y / (1.0 + tl.exp(-1.702 * y))).to(kind).to(tl.float32)
        return y * (z + 1.0).to(kind).to(tl.float32)
    if activation == _SQUARED:
        y = tl.maximum(y, 0.0)
        return y * y
    return bend(y, activation == _SILU).to(kind).to(tl.float32) * z


@triton.jit
def _grouped(
    x, weight, bias, ends, order, factors, out, pairs, share, width, depth, count,
    rows: tl.constexpr, block: tl.constexpr, step: tl.constexpr, lanes: tl.constexpr, listed: tl.constexpr,
    takes: tl.constexpr, puts: tl.constexpr, gates: tl.constexpr, activation: tl.constexpr,
    has_bias: tl.constexpr, weighs: tl.constexpr, turned: tl.constexpr, soon: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < width
    tile = tl.program_id(1)
    wait(chained)
    if soon:
        start(chained)
    if listed:  # every pair has its own tile
        expert = tl.load(ends + tile)
        begin, end = tile, tile + 1
    else:
        each = tl.arange(0, lanes)
        last = tl.load(ends + each, mask=each < count, other=0)
        first = tl.load(ends + each - 1, mask=(each > 0) & (each < count), other=0)
        tiles = tl.where(each < count, tl.cdiv(last - first, rows), 0)
        upto = tl.cumsum(tiles, 0)
        expert = tl.sum((upto <= tile).to(tl.int32), 0)
        ours = each == expert
        begin = tl.sum(tl.where(ours, first + (tile - upto + tiles) * rows, 0), 0)
        end = tl.minimum(begin + rows, tl.sum(tl.where(ours, last, 0), 0))  # 0 behind the last tile
    if begin < end:
        place = begin + tl.arange(0, rows)
        real = place < end
        pair = place
        if not listed:
            pair = tl.load(order + place, mask=real, other=0)
        lane = tl.arange(0, step)
        kind = x.dtype.element_ty
        row = pair // share if takes else place
        full = width * 2 if gates else width
        source = x + row.to(tl.int64)[:, None] * depth + lane[None, :]
        line = weight + (expert.to(tl.int64) * full + column.to(tl.int64))[None, :] * depth + lane[:, None]
        other = line + width.to(tl.int64) * depth
        y, z = summed(
            source, line, other, x, tl.zeros([rows], tl.float32), 0, depth, lane, real, inside, kind,
            rows, block, step, False, gates, turned,
        )  # fmt: skip
        if turned:
            y, z = tl.trans(y), tl.trans(z)
        if weighs:
            factor = tl.load(factors + pair, mask=real, other=0.0).to(tl.float32)[:, None]
            y, z = y * factor, z * factor
        if has_bias:
            own = bias + expert.to(tl.int64) * full + column
            y += tl.load(own, mask=inside, other=0.0).to(tl.float32)[None, :]
            if gates:
                z += tl.load(own + width, mask=inside, other=0.0).to(tl.float32)[None, :]
        if activation > 0:
            y = _bent(y, z, activation, kind)
        at = pair if puts else place
        spot = out + at.to(tl.int64)[:, None] * width + column[None, :]
        tl.store(spot, y.to(out.dtype.element_ty), mask=real[:, None] & inside[None, :])
    if not soon:
        start(chained)


@triton.jit
def _combine(
    answers, weights, beside, residual, out, dim,
    active: tl.constexpr, block: tl.constexpr, adds: tl.constexpr, more: tl.constexpr, weighs: tl.constexpr,
    chained: tl.constexpr,
):  # fmt: skip
    """Term by term, in the order in which a token's experts were chosen."""
    start(chained)
    wait(chained)
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < dim
    kind = out.dtype.element_ty
    y = tl.zeros([block], tl.float32)
    for k in tl.static_range(active):
        said = tl.load(answers + (token * active + k) * dim + column, mask=inside, other=0.0).to(tl.float32)
        if weighs:
            y = tl.fma(said, tl.load(weights + token * active + k) + tl.zeros([block], tl.float32), y)
        else:
            y += said
    y = y.to(kind).to(tl.float32)
    if more:
        y += tl.load(beside + token * dim + column, mask=inside, other=0.0).to(tl.float32)
        y = y.to(kind).to(tl.float32)
    if adds:
        y += tl.load(residual + token * dim + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * dim + column, y.to(kind), mask=inside)


def grouped(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    ends: Tensor,
    order: Tensor | None,
    *,
    share: int = 0,
    puts: bool = False,
    activation: str | None = None,
    factors: Tensor | None = None,
    steady: bool = False,
    soon: bool = False,
    cut: GroupedTile | None = None,
) -> Tensor:
    """The product of each pair with the matrix of its expert: weight [experts, out, in], bias [experts, out].

    Pairs stand in `order`, those of expert e up to ends[e] (int32, as `route.arrange` has them); without an order,
    `ends` are the experts of all pairs themselves, and each is computed alone. Pair p reads row p // share of x, or
    without a share the row where it stands in the order. The result stands there too, or if it `puts`, in row p.
    `activation`: the weight is [gate, up] stacked (but for relu2), and the result is what it makes of both.
    `factors` [pairs] multiply the products before their bias. If `steady`, any number of pairs is cut alike.
    `soon` lets the next kernel start at once, which suits one that has a processor for each of its programs.
    Cost: the matrices of experts that have pairs, once for each tile of them; one launch.
    """
    (experts, full, depth), listed = weight.shape, order is None
    pairs = ends.numel() if order is None else order.numel()
    gates = activation not in (None, "relu2")
    width = full // 2 if gates else full
    out = torch.empty(pairs, width, dtype=x.dtype, device=x.device)
    exact = x.dtype == torch.float32
    cut = cut or (CUTS[0] if listed or steady or pairs < MANY * experts else GroupedTile(64, 64, 64))
    if exact:
        cut = GroupedTile(cut.rows, 32, 32, stages=2)
    tiles = pairs if listed else min(pairs, experts) + pairs // cut.rows
    chain = chained()
    fitted(
        lambda stages: _grouped[(triton.cdiv(width, cut.block), tiles)](
            x, weight, x if bias is None else bias, ends, ends if order is None else order,
            x if factors is None else factors, out, pairs, share, width, depth, experts,
            rows=cut.rows, block=cut.block, step=cut.step, lanes=triton.next_power_of_2(experts), listed=listed,
            takes=share > 0, puts=puts, gates=gates, activation=ACTIVATIONS[activation], has_bias=bias is not None,
            weighs=factors is not None, turned=cut.rows == 16 and not exact, soon=soon,
            num_warps=cut.warps, num_stages=stages, chained=chain, launch_pdl=chain,
        ),
        cut.stages,
        ("grouped", cut, gates, x.dtype),
    )  # fmt: skip
    return out


def combine(
    answers: Tensor, weights: Tensor, beside: Tensor | None = None, residual: Tensor | None = None, weighs: bool = True
) -> Tensor:
    """Σ w·answer [n, dim] of answers [n · active, dim] and weights [n, active]; then what stands beside, and residual.

    Every sum is rounded as if it had been written out. Cost: one launch.
    """
    (n, active), dim = weights.shape, answers.shape[1]
    out = torch.empty(n, dim, dtype=answers.dtype, device=answers.device)
    chain = chained()
    _combine[(n, triton.cdiv(dim, 512))](
        answers, weights, out if beside is None else beside, out if residual is None else residual, out, dim,
        active=active, block=512, adds=residual is not None, more=beside is not None, weighs=weighs,
        num_warps=4, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out


def reference(
    x: Tensor, chosen: Tensor, first: Tensor, first_bias: Tensor | None, down: Tensor, activation: str
) -> Tensor:
    """What the chosen experts [n, active] say of each token [n, active, dim], pair by pair, in float32."""
    said = []
    for token, experts in zip(x.float(), chosen.tolist(), strict=True):
        for e in experts:
            both = F.linear(token, first[e].float(), None if first_bias is None else first_bias[e].float())
            g, u = both.chunk(2) if activation != "relu2" else (both, both)
            said.append(F.linear(_bent_reference(g, u, activation), down[e].float()))
    return torch.stack(said).view(*chosen.shape, -1).to(x.dtype)


def _bent_reference(g: Tensor, u: Tensor, activation: str) -> Tensor:
    if activation == "relu2":
        return F.relu(g).square()
    if activation == "clamped_swish":
        g = g.clamp(max=7)
        return g * torch.sigmoid(1.702 * g) * (u.clamp(-7, 7) + 1)
    return (F.silu(g) if activation == "silu" else F.gelu(g, approximate="tanh")) * u
