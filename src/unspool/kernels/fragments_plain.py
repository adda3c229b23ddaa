"""What fragments.py does in PTX, in Triton alone: for the interpreter, which has no tensor cores.

Threads are numbered as there: 4·g + t of a warp has lines g and g + 8 of the weights, a share of token g, and results
of tokens 2·t and 2·t + 1.
"""

import triton
import triton.language as tl


@triton.jit
def plain_four(y, w, shared, low, high, low_sum, high_sum, kind: tl.constexpr):
    """As `fragments.four`."""
    first, second = _halves(w)
    large: tl.constexpr = 1024 if kind == tl.float16 else 128
    y = _shared(y, _met(_nibbles(first), _nibbles(first >> 4), low, kind), shared, low_sum / -large)
    return _shared(y, _met(_nibbles(second), _nibbles(second >> 4), high, kind), shared >> 16, high_sum / -large)


@triton.jit
def plain_eight(y, w, other, low, high, kind: tl.constexpr):
    """As `fragments.eight`."""
    a, b = _halves(w)
    c, d = _halves(other)
    return y + _met(_bytes(a), _bytes(c), low, kind) + _met(_bytes(b), _bytes(d), high, kind)


@triton.jit
def plain_sums(y, x, kind: tl.constexpr):
    """As `fragments.sums`."""
    large = tl.full([x.shape[0], 2, 4], -1024.0 if kind == tl.float16 else -128.0, tl.float32)
    return y + _met(large, large, x, kind)


@triton.jit
def _halves(x):
    """The first two and the last two of four."""
    return tl.split(tl.permute(tl.reshape(x, [x.shape[0], 2, 2]), (0, 2, 1)))


@triton.jit
def _nibbles(w):
    """The numbers of line g in two words [threads, 2, 4]; those of line g + 8 stand four bits further on."""
    part = tl.arange(0, 4)
    shift = 8 * (part // 2) + 16 * (part % 2)
    return ((tl.reshape(w, [w.shape[0], 2, 1]) >> shift[None, None, :]) & 15).to(tl.float32)


@triton.jit
def _bytes(w):
    """The bytes of two words as whole numbers with a sign [threads, 2, 4]."""
    each = tl.reshape(w, [w.shape[0], 2, 1]) >> (8 * tl.arange(0, 4))[None, None, :]
    return (((each & 255) ^ 128) - 128).to(tl.float32)


@triton.jit
def _met(own, other, x, kind: tl.constexpr):
    """Σ q·x as results stand, of the numbers that every thread has of both lines and of its token."""
    each = tl.reshape(x, [x.shape[0], 4, 1]) >> (16 * tl.arange(0, 2))[None, None, :]
    x = tl.reshape(each.to(tl.int16).to(kind, bitcast=True).to(tl.float32), [x.shape[0] // 32, 1, 8, 32])
    first = tl.sum(tl.reshape(own, [own.shape[0] // 32, 8, 1, 32]) * x, 3)
    second = tl.sum(tl.reshape(other, [own.shape[0] // 32, 8, 1, 32]) * x, 3)
    both = tl.join(tl.reshape(first, [own.shape[0], 2]), tl.reshape(second, [own.shape[0], 2]))
    return tl.reshape(tl.permute(both, (0, 2, 1)), [own.shape[0], 4])


@triton.jit
def _shared(y, found, shared, total):
    """y with the terms of one group."""
    both = shared.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    both = tl.broadcast_to(tl.reshape(both, [y.shape[0], 4, 1]), [y.shape[0], 4, 2])
    scale, least = tl.split(tl.permute(tl.reshape(both, [y.shape[0], 2, 4]), (0, 2, 1)))
    return y + scale * found + least * total
