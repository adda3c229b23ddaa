"""Root-mean-square norms of whole rows, alone or with the addition to the residual stream that comes before them."""

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait

MANY = 1024  # rows that keep a chip at work if each has one warp


@triton.jit
def squares(given):
    """Squares in float64, which holds them to the last bit.

    A processor converts few numbers to float64 at a time. But squares of 16-bit numbers are exact in float32, and
    become float64 bit by bit: the same fraction, and an exponent that counts from elsewhere. Only zero, and what is
    nearly zero, becomes 2^-127 or so, which no sum shows that is then rounded and has an epsilon added to it.
    """
    if given.dtype == tl.float32:
        wide = given.to(tl.float64)
        return wide * wide
    square = given.to(tl.float32) * given.to(tl.float32)
    return ((square.to(tl.int32, bitcast=True).to(tl.int64) << 29) + (896 << 52)).to(tl.float64, bitcast=True)


@triton.jit
def scaled(given, square, factor, dim, eps):
    """Numbers over the root of their mean square, times a factor each, rounded once.

    The sum of squares comes in float64, where the order of its terms does not show: kernels that cut a row in different
    ways agree in every bit.
    """
    size = tl.rsqrt(square.to(tl.float32) / dim + eps)
    return (given.to(tl.float32) * size * factor).to(given.dtype)


@triton.jit
def _rms(x, weight, out, dim, eps, stride, block: tl.constexpr, chained: tl.constexpr):
    start(chained)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < dim
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)  # on their way while the kernel before ends
    wait(chained)
    given = tl.load(x + row * stride + column, mask=inside, other=0.0)
    tl.store(out + row * dim + column, scaled(given, tl.sum(squares(given), 0), w, dim, eps), mask=inside)


@triton.jit
def _add_rms(
    x, added, after, weight, total, out, dim, eps, x_stride, added_stride,
    block: tl.constexpr, normed: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < dim
    given = tl.load(x + row * x_stride + column, mask=inside, other=0.0)
    more = tl.load(added + row * added_stride + column, mask=inside, other=0.0).to(tl.float32)
    if normed:
        w = tl.load(after + column, mask=inside, other=0.0).to(tl.float32)
        more = more * tl.rsqrt(tl.sum(more * more, 0) / dim + eps) * w
        more = more.to(given.dtype).to(tl.float32)
    both = (given.to(tl.float32) + more).to(given.dtype)
    tl.store(total + row * dim + column, both, mask=inside)
    wide = both.to(tl.float32)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    size = tl.rsqrt(tl.sum(wide * wide, 0) / dim + eps)
    tl.store(out + row * dim + column, (wide * size * w).to(given.dtype), mask=inside)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + ε) · w for each row of x [n, dim], in float32 and rounded once.

    Cost: one launch.
    """
    n, dim = x.shape
    out = torch.empty(n, dim, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(dim)
    chain = chained()
    _rms[(n,)](
        x,
        weight,
        out,
        dim,
        eps,
        x.stride(0),
        block=block,
        num_warps=1 if n > MANY and block <= 1024 else _warps(block),
        chained=chain,
        launch_pdl=chain,
    )
    return out


def add_rms(x: Tensor, added: Tensor, weight: Tensor, eps: float, after: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The residual stream x + added, and its norm; with `after`, Gemma's norm of what is added comes first.

    Cost: one launch instead of two or three.
    """
    n, dim = x.shape
    total = torch.empty(n, dim, dtype=x.dtype, device=x.device)
    out = torch.empty(n, dim, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(dim)
    chain = chained()
    _add_rms[(n,)](
        x, added, weight if after is None else after, weight, total, out, dim, eps, x.stride(0), added.stride(0),
        block=block, normed=after is not None, num_warps=_warps(block), chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return total, out


def _warps(block: int) -> int:
    return max(1, min(16, block // 512))


def rms_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same as `rms`."""
    return F.rms_norm(x.float(), weight.shape, weight.float(), eps).to(x.dtype)


def add_rms_reference(
    x: Tensor, added: Tensor, weight: Tensor, eps: float, after: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same as `add_rms`."""
    total = x + (added if after is None else rms_reference(added, after, eps))
    return total, rms_reference(total, weight, eps)
