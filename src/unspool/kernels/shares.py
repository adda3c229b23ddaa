"""The shares of a product's sums as its results: what programs that split a sum leave behind is added up in order."""

import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .epilogue import finish, gated
from .gate import SILU


@triton.jit
def _sum(
    x, parts, bias, residual, out, n, width,
    block: tl.constexpr, splits: tl.constexpr, gates: tl.constexpr, silu: tl.constexpr,
    has_bias: tl.constexpr, adds: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Add up the splits in their order, which is what makes the result the same every time."""
    start(chained)
    wait(chained)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    kind = x.dtype.element_ty
    full = width * 2 if gates else width
    y = tl.zeros([block], tl.float32)
    z = tl.zeros([block], tl.float32)
    for split in tl.static_range(splits):
        source = parts + (split * n + row) * full + column
        y += tl.load(source, mask=inside, other=0.0)
        if gates:
            z += tl.load(source + width, mask=inside, other=0.0)
    if gates:
        y = gated(y, z, bias, column, width, inside, kind, has_bias, silu)
    else:
        more = y
        if adds:
            more = tl.load(residual + row * width + column, mask=inside, other=0.0).to(tl.float32)
        y = finish(y, bias, more, column, inside, kind, has_bias, adds)
    tl.store(out + row * width + column, y.to(out.dtype.element_ty), mask=inside)


def add_up(
    x: Tensor, parts: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str | None, out: Tensor
) -> None:
    """The shares [splits, n, out] of a product's sums as its results, in one launch."""
    (n, width), chain = out.shape, chained()
    b, r = (x if given is None else given for given in (bias, residual))
    _sum[(n, triton.cdiv(width, 512))](
        x, parts, b, r, out, n, width,
        block=512, splits=len(parts), gates=activation is not None, silu=activation == SILU, has_bias=bias is not None,
        adds=residual is not None, num_warps=4, chained=chain, launch_pdl=chain,
    )  # fmt: skip
