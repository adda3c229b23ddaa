"""Weights of few bits spread once for many tokens: what `fragments` does with each eight of them, in two parts.

The weights of a piece become the registers that tensor cores take, and then meet eight tokens at a time. For a GPU
alone: the interpreter runs the functions of `fragments`, which find the same.
"""

import triton
import triton.language as tl

from .fragments import KINDS, bytes_apart, floats_apart, listed, mma, nibbles


def _spread_four() -> str:
    """The 4-bit numbers of four words, each as the four registers that tensor cores take."""
    text = "{ .reg .b32 a<4>, t; "
    for i, word in enumerate(listed(16, 4)):
        text += nibbles(word) + "".join(f"mov.b32 ${4 * i + j}, a{j}; " for j in range(4))
    return text + "}"


def _spread_eight(kind: str, floats: bool) -> str:
    """The same of the bytes of eight words, of two at a time."""
    text = "{ .reg .b32 a<4>, t; "
    for half in range(4):
        for line in range(2):
            word = f"${16 + 2 * half + line}"
            text += floats_apart(word, line, kind) if floats else bytes_apart(word, line)
        text += "".join(f"mov.b32 ${4 * half + j}, a{j}; " for j in range(4))
    return text + "}"


def _met_four(kind: str, zeros: bool) -> str:
    """`_four` of weights that are spread already, and of what groups share in float32."""
    out, *spread, low_share, high_share, low, high, low_sum, high_sum, y = (listed(4 * i, 4) for i in range(12))
    text = "{ .reg .f32 f<4>, y<4>; " + "".join(f"mov.f32 y{i}, {y[i]}; " for i in range(4))
    for group, (x, total, share) in enumerate(((low, low_sum, low_share), (high, high_sum, high_share))):
        for half in range(2):
            before = "f0, f1, f2, f3" if half else "0f00000000, 0f00000000, 0f00000000, 0f00000000"
            text += mma(
                kind, "f0, f1, f2, f3", ", ".join(spread[2 * group + half]), ", ".join(x[2 * half :][:2]), before
            )
        for i in range(4):
            scale, other = share[i // 2], share[2 + i // 2]
            if zeros:
                text += f"fma.rn.f32 f{i}, {total[i]}, {other}, f{i}; fma.rn.f32 y{i}, f{i}, {scale}, y{i}; "
            else:
                text += f"fma.rn.f32 y{i}, f{i}, {scale}, y{i}; fma.rn.f32 y{i}, {total[i]}, {other}, y{i}; "
    return text + "".join(f"mov.f32 {out[i]}, y{i}; " for i in range(4)) + "}"


def _met_eight(kind: str) -> str:
    """`_eight` of weights that are spread already."""
    out, *spread, low, high, begin, y = (listed(4 * i, 4) for i in range(9))
    text = "{ .reg .f32 f<4>; " + "".join(f"mov.f32 f{i}, {begin[i]}; " for i in range(4))
    for number, a in enumerate(spread):
        b = (low + high)[2 * number :][:2]
        text += mma(kind, "f0, f1, f2, f3", ", ".join(a), ", ".join(b), "f0, f1, f2, f3")
    text += "".join(f"add.rn.f32 f{i}, f{i}, {y[i]}; " for i in range(4))
    return text + "".join(f"mov.f32 {out[i]}, f{i}; " for i in range(4)) + "}"


_SHARES = (  # what both groups share, in float32
    "{ .reg .b16 h<2>; "
    + "".join(f"mov.b32 {{h0, h1}}, ${8 + i}; cvt.f32.f16 ${i}, h0; cvt.f32.f16 ${4 + i}, h1; " for i in range(4))
    + "}"
)
_SPREAD_FOUR, _SHARES_TEXT = tl.constexpr(_spread_four()), tl.constexpr(_SHARES)
_SPREAD_EIGHT = tl.constexpr(tuple(_spread_eight(kind, floats) for floats in (False, True) for kind in KINDS))
_MET_FOUR = tl.constexpr(tuple(_met_four(kind, zeros) for zeros in (False, True) for kind in KINDS))
_MET_EIGHT = tl.constexpr(tuple(map(_met_eight, KINDS)))
_SPREAD_FOUR_ARGS = tl.constexpr(",".join(["=&r"] * 16 + ["r"] * 4))
_SPREAD_EIGHT_ARGS = tl.constexpr(",".join(["=&r"] * 16 + ["r"] * 8))
_SHARES_ARGS = tl.constexpr(",".join(["=&f"] * 8 + ["r"] * 4))
_MET_FOUR_ARGS = tl.constexpr("=f,=f,=f,=f," + ",".join(["r"] * 16 + ["f"] * 8 + ["r"] * 8 + ["f"] * 12))
_MET_EIGHT_ARGS = tl.constexpr("=f,=f,=f,=f," + ",".join(["r"] * 24 + ["f"] * 8))


@triton.jit
def spread_four(w, shared):
    """Weights of a piece as tensor cores take them, and what both groups share: once for many tokens."""
    w0, w1, w2, w3 = tl.inline_asm_elementwise(
        _SPREAD_FOUR, _SPREAD_FOUR_ARGS, [w],
        dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=4,
    )  # fmt: skip
    low, high = tl.inline_asm_elementwise(
        _SHARES_TEXT, _SHARES_ARGS, [shared], dtype=(tl.float32, tl.float32), is_pure=True, pack=4
    )
    return (w0, w1, w2, w3, low, high)


@triton.jit
def spread_eight(first, second, kind: tl.constexpr, floats: tl.constexpr):
    """The same of weights of 8 bits."""
    which: tl.constexpr = (1 if kind == tl.float16 else 0) + (2 if floats else 0)
    w0, w1, w2, w3 = tl.inline_asm_elementwise(
        _SPREAD_EIGHT[which], _SPREAD_EIGHT_ARGS, [first, second],
        dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=4,
    )  # fmt: skip
    return (w0, w1, w2, w3)


@triton.jit
def met_four(y, w, low, high, low_sum, high_sum, kind: tl.constexpr, zeros: tl.constexpr):
    """What `four` finds, of weights as `spread_four` has them."""
    which: tl.constexpr = (1 if kind == tl.float16 else 0) + (2 if zeros else 0)
    return tl.inline_asm_elementwise(
        _MET_FOUR[which], _MET_FOUR_ARGS, [w[0], w[1], w[2], w[3], w[4], w[5], low, high, low_sum, high_sum, y],
        dtype=tl.float32, is_pure=True, pack=4,
    )  # fmt: skip


@triton.jit
def met_eight(y, w, low, high, begin, kind: tl.constexpr):
    """What `eight` finds, of weights as `spread_eight` has them."""
    which: tl.constexpr = 1 if kind == tl.float16 else 0
    return tl.inline_asm_elementwise(
        _MET_EIGHT[which], _MET_EIGHT_ARGS, [w[0], w[1], w[2], w[3], low, high, begin, y],
        dtype=tl.float32, is_pure=True, pack=4,
    )  # fmt: skip
