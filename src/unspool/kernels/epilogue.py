"""What is done to the sums of a product before they are stored, and how weights become numbers to multiply."""

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


@triton.jit
def widened(w):
    """Weights as float32; those of a byte without a conversion, of which a processor does few at a time."""
    if w.dtype == tl.int8:
        return (((w.to(tl.int32) & 255) ^ 128) | 0x4B000000).to(tl.float32, bitcast=True) - 8388736.0
    return w.to(tl.float32)
