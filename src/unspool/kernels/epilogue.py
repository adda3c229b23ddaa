"""How a product ends: its bias, what it is added to, or the gate that its other half opens, each step rounded."""

import triton
import triton.language as tl

from .gate import bend


@triton.jit
def finish(y, bias, more, column, inside, kind: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr):
    """Round y as a product with its bias is rounded, then add what it is added to."""
    if has_bias:
        y += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    y = y.to(kind).to(tl.float32)
    if adds:
        y += more.to(tl.float32)
    return y


@triton.jit
def gated(g, u, bias, column, width, inside, kind: tl.constexpr, has_bias: tl.constexpr, silu: tl.constexpr):
    """act(g)·u of both halves of a product, each step rounded as if it had been written out."""
    g = finish(g, bias, g, column, inside, kind, has_bias, False)
    u = finish(u, bias + width, u, column, inside, kind, has_bias, False)
    return bend(g, silu).to(kind).to(tl.float32) * u
