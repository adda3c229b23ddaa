"""Products of weights of few bits on tensor cores, from the registers that a load puts them in.

A warp multiplies 16 lines of weights with 8 tokens. Thread 4·g + t of it has its share of lines g and g + 8, its share
of token g, and the results of both lines for tokens 2·t and 2·t + 1: four numbers, those of line g first. That is how
these cores take what they multiply (`mma.m16n8k16`), so nothing moves between threads.

A whole number q of up to 8 bits is a number of 16 bits as it stands there, q·2⁻²⁴ in float16 and q·2⁻¹³³ in bfloat16:
it needs no conversion, a mask is enough. Tokens in bfloat16 come times 2⁶⁴, so that no sum is too small to be told; see
`unit`. All this is PTX; the same in Triton alone, which the interpreter runs, is in fragments_plain.py.
"""

import triton
import triton.language as tl

from .fragments_plain import plain_eight, plain_four, plain_sums

_KINDS = ("bf16", "f16")
_NONE = ", ".join(["0f00000000"] * 4)


def _mma(kind: str, into: str, a: str, b: str, c: str) -> str:
    return f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{{into}}}, {{{a}}}, {{{b}}}, {{{c}}}; "


def _operands(number: int) -> list[list[str]]:
    """The names of so many operands of four registers each, the result first."""
    return [[f"${4 * i + j}" for j in range(4)] for i in range(number)]


def _four(kind: str) -> str:
    """Both groups of 64 numbers of 16 lines: masks, two products each, and what a group shares applied to their sum."""
    out, w, shared, *parts, y = _operands(8)
    text = "{ .reg .b32 a<4>, t; .reg .b16 h<2>; .reg .f32 f<4>, s<8>, y<4>; "
    for i in range(4):  # scales of lines g and g + 8, then leasts; of both groups each
        text += f"mov.b32 {{h0, h1}}, {shared[i]}; cvt.f32.f16 s{i}, h0; cvt.f32.f16 s{4 + i}, h1; "
    text += "".join(f"mov.f32 y{i}, {y[i]}; " for i in range(4))
    for group, (x, total) in enumerate(zip(parts[:2], parts[2:], strict=True)):
        for half in range(2):
            word = w[2 * group + half]
            text += f"and.b32 a0, {word}, 0x000F000F; and.b32 a1, {word}, 0x00F000F0; shr.u32 t, {word}, 8; "
            text += "and.b32 a2, t, 0x000F000F; and.b32 a3, t, 0x00F000F0; "
            before = "f0, f1, f2, f3" if half else _NONE
            text += _mma(kind, "f0, f1, f2, f3", "a0, a1, a2, a3", ", ".join(x[2 * half : 2 * half + 2]), before)
        for i in range(4):
            scale, least = f"s{4 * group + i // 2}", f"s{4 * group + 2 + i // 2}"
            text += f"fma.rn.f32 y{i}, f{i}, {scale}, y{i}; fma.rn.f32 y{i}, {total[i]}, {least}, y{i}; "
    return text + "".join(f"mov.f32 {out[i]}, y{i}; " for i in range(4)) + "}"


def _eight(kind: str) -> str:
    """64 numbers of 16 lines: four products, of masked bytes 0 and 2, then 1 and 3 of a word, plus 128."""
    out, w, other, low, high, y = _operands(6)
    text = "{ .reg .b32 a<4>, t; .reg .f32 f<4>; "
    for i in range(4):
        for j, word in enumerate((w[i], other[i])):
            text += f"and.b32 t, {word}, 0x00FF00FF; xor.b32 a{j}, t, 0x00800080; shr.u32 t, {word}, 8; "
            text += f"and.b32 t, t, 0x00FF00FF; xor.b32 a{2 + j}, t, 0x00800080; "
        into, before = ", ".join(out) if i == 3 else "f0, f1, f2, f3", "f0, f1, f2, f3" if i else ", ".join(y)
        text += _mma(kind, into, "a0, a1, a2, a3", ", ".join((low + high)[2 * i : 2 * i + 2]), before)
    return text + "}"


def _sum(kind: str, own: int, other: int) -> str:
    """y and the sums of a token's numbers times the one whole number for lines g, times the other for lines g + 8."""
    out, x, y = _operands(3)
    text = f"{{ .reg .b32 a, b; .reg .f32 f<4>; mov.b32 a, {own * 0x10001:#x}; mov.b32 b, {other * 0x10001:#x}; "
    text += _mma(kind, "f0, f1, f2, f3", "a, b, a, b", ", ".join(x[:2]), ", ".join(y))
    return text + _mma(kind, ", ".join(out), "a, b, a, b", ", ".join(x[2:]), "f0, f1, f2, f3") + "}"


def _paired(kind: str) -> str:
    """Words of numbers 0 1, 2 3, 4 5, 6 7 as words of 0 2, 1 3, 4 6, 5 7, times 2⁶⁴ if they are bfloat16."""
    out, x = _operands(2)
    text = "{ .reg .b32 t, x<4>; mov.b32 t, 0x5F805F80; "
    for i in range(4):
        text += f"mul.rn.bf16x2 x{i}, {x[i]}, t; " if kind == "bf16" else f"mov.b32 x{i}, {x[i]}; "
    for i in (0, 2):
        text += f"prmt.b32 {out[i]}, x{i}, x{i + 1}, 0x5410; prmt.b32 {out[i + 1]}, x{i}, x{i + 1}, 0x7632; "
    return text + "}"


def _args(words: int, numbers: int) -> tl.constexpr:
    return tl.constexpr(",".join(["=f"] * 4 + ["r"] * (4 * words) + ["f"] * (4 * numbers)))


_FOUR, _FOUR_ARGS = tl.constexpr(tuple(map(_four, _KINDS))), _args(4, 3)
_EIGHT, _EIGHT_ARGS = tl.constexpr(tuple(map(_eight, _KINDS))), _args(4, 1)
_SUM, _SUM_ARGS = (
    tl.constexpr(tuple(_sum(kind, *lines) for lines in ((1, 16), (128, 128)) for kind in _KINDS)),
    _args(1, 1),
)
_PAIRED = tl.constexpr(tuple(map(_paired, _KINDS)))
_ENLARGED = tl.constexpr("{ .reg .b32 t; mov.b32 t, 0x5F805F80; mul.rn.bf16x2 $0, $1, t; }")


@triton.jit
def unit(kind: tl.constexpr, packs: tl.constexpr):
    """What one is in the results of these products: 2⁻²⁴ or 2⁻⁶⁹."""
    return 1.0 if not packs else 1.0 / 16777216.0 if kind == tl.float16 else 1.0 / 590295810358705651712.0


@triton.jit
def enlarged(x, kind: tl.constexpr, pairs: tl.constexpr, packs: tl.constexpr):
    """Tokens [threads, 4], two numbers a word, as `four` takes them, or if it `pairs`, as `eight` does."""
    if packs and pairs:
        x = tl.inline_asm_elementwise(
            _PAIRED[1 if kind == tl.float16 else 0], "=r,=r,=r,=r,r,r,r,r", [x], dtype=tl.int32, is_pure=True, pack=4
        )
    elif packs and kind == tl.bfloat16:
        x = tl.inline_asm_elementwise(_ENLARGED, "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)
    return x


@triton.jit
def four(y, w, shared, low, high, low_sum, high_sum, kind: tl.constexpr, packs: tl.constexpr):
    """y [threads, 4] and what 64 numbers of weights of 4 bits add: scale·Σ q·x + least·Σ x of both groups of 32.

    All are words [threads, 4], a token's of numbers 8·t to 8·t + 7 of a group. Bits 8·i + 16·h + 4·l to the third next
    of word 2·p + m have the weight of line g + 8·l for number 8·t + 4·m + 2·i + h of group p; `shared` has scales of
    line g, of line g + 8, then leasts, each of both groups in float16. Lines g + 8 come out times 16.
    """
    if packs:
        y = tl.inline_asm_elementwise(
            _FOUR[1 if kind == tl.float16 else 0], _FOUR_ARGS, [w, shared, low, high, low_sum, high_sum, y],
            dtype=tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    else:
        y = plain_four(y, w, shared, low, high, low_sum, high_sum, kind)
    return y


@triton.jit
def eight(y, w, other, low, high, kind: tl.constexpr, packs: tl.constexpr):
    """y [threads, 4] and Σ (128 + q)·x of 64 numbers of weights of 8 bits, 16·t to 16·t + 15 of lines g and g + 8.

    All are words [threads, 4], as they stand in a row.
    """
    if packs:
        y = tl.inline_asm_elementwise(
            _EIGHT[1 if kind == tl.float16 else 0], _EIGHT_ARGS, [w, other, low, high, y],
            dtype=tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    else:
        y = plain_eight(y, w, other, low, high, kind)
    return y


@triton.jit
def sums(y, x, kind: tl.constexpr, bits: tl.constexpr, packs: tl.constexpr):
    """y and the sums of 32 numbers of every token, as results stand: of 8 bits times 128; of 4, g + 8 times 16."""
    if packs:
        y = tl.inline_asm_elementwise(
            _SUM[(2 if bits == 8 else 0) + (1 if kind == tl.float16 else 0)], _SUM_ARGS, [x, y],
            dtype=tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    else:
        y = plain_sums(y, x, kind, bits)
    return y
