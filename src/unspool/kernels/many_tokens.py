"""A matrix times many tokens on tensor cores: tiles of both come as copies that the chip makes by itself (TMA).

The sums are those of `Tile.apart`, or one chain of all terms; so a token has the bits that it has among few.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from .draft_chain import chained, start, wait
from .epilogue import finish, gated
from .gate import SILU
from .tile import PIECE, Tile

ALIGNED = 16  # bytes that lines and tensors start at multiples of


@triton.jit
def _many_tokens(
    tokens, weights, others, bias, residual, out, n, width, depth,
    rows: tl.constexpr, block: tl.constexpr, step: tl.constexpr, piece: tl.constexpr, apart: tl.constexpr,
    gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr,
    stages: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """`rows` × `block` results; the terms of a piece are summed by themselves, and then pieces, if `apart`."""
    wait(chained)
    row, column = tl.program_id(0) * rows, tl.program_id(1) * block
    none = tl.zeros([rows, block], tl.float32)
    one = none + 1.0  # pieces are not added by an addition, which would make them one product
    y, z, own, other = none, none, none, none
    whole: tl.constexpr = apart and step == piece
    for at in tl.range(0, depth, step, num_stages=stages):
        x = tokens.load([row, at])
        own = tl.dot(x, weights.load([column, at]).T, none if whole else own)
        if gates:
            other = tl.dot(x, others.load([column, at]).T, none if whole else other)
        if whole:
            y, z = tl.fma(own, one, y), tl.fma(other, one, z)
        elif apart:  # noqa: SIM102 (known when it is compiled, what follows is not)
            if (at + step) % piece == 0:
                y, own = tl.fma(own, one, y), none
                if gates:
                    z, other = tl.fma(other, one, z), none
    start(chained)
    if not whole:
        y, z = tl.fma(own, one, y), tl.fma(other, one, z)
    lines, columns = row + tl.arange(0, rows), column + tl.arange(0, block)
    inside = columns[None, :] < width
    exists, spot = (lines < n)[:, None] & inside, lines[:, None].to(tl.int64) * width + columns[None, :]
    kind: tl.constexpr = out.dtype.element_ty
    if gates:
        y = gated(y, z, bias, columns[None, :], width, inside, kind, has_bias, silu)
    else:
        more = y
        if adds:
            more = tl.load(residual + spot, mask=exists, other=0.0)
        y = finish(y, bias, more, columns[None, :], inside, kind, has_bias, adds)
    tl.store(out + spot, y.to(kind), mask=exists)


def describable(x: Tensor, weight: Tensor, out: Tensor) -> bool:
    """Whether the chip can copy tiles of these by itself."""
    able = x.device.type != "cuda" or torch.cuda.get_device_capability(x.device) >= (9, 0)
    same = x.dtype == weight.dtype == out.dtype and x.dtype.itemsize == 2
    starts = (x.data_ptr(), weight.data_ptr(), x.shape[1] * x.dtype.itemsize)
    return able and same and all(start % ALIGNED == 0 for start in starts)


def many_tokens(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str | None,
    out: Tensor,
    cut: Tile,
) -> Tensor:
    """`linear` of many tokens x [n, in], into `out`; the bits are those of other tiles that sum the same steps."""
    (n, depth), width, chain = x.shape, out.shape[1], chained()
    tokens = TensorDescriptor.from_tensor(x, [cut.rows, cut.step])
    weights, others = (TensorDescriptor.from_tensor(part, [cut.block, cut.step]) for part in halves(weight, width))
    b, r = (x if given is None else given for given in (bias, residual))
    _many_tokens[(triton.cdiv(n, cut.rows), triton.cdiv(width, cut.block))](
        tokens, weights, others, b, r, out, n, width, depth,
        rows=cut.rows, block=cut.block, step=cut.step, piece=PIECE, apart=cut.apart, gates=activation is not None,
        silu=activation == SILU, has_bias=bias is not None, adds=residual is not None, stages=cut.stages,
        num_warps=cut.warps, num_stages=cut.stages, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out


def halves(weight: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The two halves of a gated weight; of another, itself twice."""
    return weight[:width], weight[-width:]
