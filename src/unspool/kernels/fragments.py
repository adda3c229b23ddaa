"""Products of weights of few bits on tensor cores, from the registers that a load puts them in.

A warp multiplies 16 lines of weights with 8 tokens. Thread 4·g + t of it has its share of lines g and g + 8, its share
of token g, and the results of both lines for tokens 2·t and 2·t + 1: four numbers, those of line g first. That is how
these cores take what they multiply (`mma.m16n8k16`), so nothing moves between threads.

Four bits set into those of a large number, 128 in bfloat16 or 1024 in float16, are that number and so many more: no
conversion, a mask is enough. What it is too large by is there from the start, see `sums`. All this is PTX; the same in
Triton alone, which the interpreter runs, is in fragments_plain.py.
"""

from struct import pack, unpack

import triton
import triton.language as tl

from .fragments_plain import plain_eight, plain_four, plain_sums

_KINDS = ("bf16", "f16")
LARGE = {"bf16": 128, "f16": 1024}
_BITS = {"bf16": 0x43004300, "f16": 0x64006400}


def _real(x: float) -> str:
    return f"0f{unpack('<I', pack('<f', x))[0]:08X}"


def _mma(kind: str, into: str, a: str, b: str, c: str) -> str:
    return f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{{into}}}, {{{a}}}, {{{b}}}, {{{c}}}; "


def _operands(number: int) -> list[list[str]]:
    """The names of so many operands of four registers each, the result first."""
    return [[f"${4 * i + j}" for j in range(4)] for i in range(number)]


def _taken(word: str, bits: int, flips: bool = False) -> str:
    """Four bits from so many on of both halves of a word, set into those of the large number; the top one flipped."""
    shift = f"shr.u32 t, {word}, {bits}; " if bits else f"mov.b32 t, {word}; "
    return shift + f"lop3.b32 a{{}}, t, 0x000F000F, {{:#x}}, {0x6A if flips else 0xEA}; "


def _four(kind: str) -> str:
    """Both groups of 64 numbers of 16 lines: masks, two products each, and what a group shares applied to their sum."""
    out, w, shared, *parts, y = _operands(8)
    text = "{ .reg .b32 a<4>, t; .reg .b16 h<2>; .reg .f32 f<4>, s<8>, y<4>; "
    for i in range(4):  # scales of lines g and g + 8, then leasts; of both groups each
        text += f"mov.b32 {{h0, h1}}, {shared[i]}; cvt.f32.f16 s{i}, h0; cvt.f32.f16 s{4 + i}, h1; "
    for i in (2, 3, 6, 7):  # sums come times so much
        text += f"mul.f32 s{i}, s{i}, {_real(-1 / LARGE[kind])}; "
    text += "".join(f"mov.f32 y{i}, {y[i]}; " for i in range(4))
    for group, (x, total) in enumerate(zip(parts[:2], parts[2:], strict=True)):
        for half in range(2):
            word = w[2 * group + half]
            text += "".join(_taken(word, 4 * i).format(i, _BITS[kind]) for i in range(4))
            before = "f0, f1, f2, f3" if half else ", ".join(total)
            text += _mma(kind, "f0, f1, f2, f3", "a0, a1, a2, a3", ", ".join(x[2 * half : 2 * half + 2]), before)
        for i in range(4):
            scale, least = f"s{4 * group + i // 2}", f"s{4 * group + 2 + i // 2}"
            text += f"fma.rn.f32 y{i}, f{i}, {scale}, y{i}; fma.rn.f32 y{i}, {total[i]}, {least}, y{i}; "
    return text + "".join(f"mov.f32 {out[i]}, y{i}; " for i in range(4)) + "}"


def _eight(kind: str) -> str:
    """64 numbers of 16 lines: upper and lower halves of bytes by four products each, bytes 0 and 2 before 1 and 3."""
    out, w, other, low, high, total, y = _operands(7)
    text = "{ .reg .b32 a<4>, t; .reg .f32 f<4>, e<4>; "
    for i in range(4):  # the upper half of a byte is 8 too large when its sign is flipped
        text += f"mul.f32 f{i}, {total[i]}, {_real((LARGE[kind] + 8) / LARGE[kind])}; mov.f32 e{i}, {total[i]}; "
    for i in range(4):
        x = ", ".join((low + high)[2 * i : 2 * i + 2])
        for sums, bits in (("f0, f1, f2, f3", 4), ("e0, e1, e2, e3", 0)):
            for j, word in enumerate((w[i], other[i])):
                for k in range(2):
                    flips = _BITS[kind] ^ (0x00080008 if bits else 0)
                    text += _taken(word, 8 * k + bits, flips=True).format(2 * k + j, flips)
            text += _mma(kind, sums, "a0, a1, a2, a3", x, sums)
    for i in range(4):
        text += f"fma.rn.f32 f{i}, f{i}, {_real(16.0)}, e{i}; add.f32 {out[i]}, {y[i]}, f{i}; "
    return text + "}"


def _sum(kind: str) -> str:
    """y and the sums of a token's numbers, times what weights are too large by, with the other sign."""
    out, x, y = _operands(3)
    text = f"{{ .reg .b32 a; .reg .f32 f<4>; mov.b32 a, {_BITS[kind] | 0x80008000:#x}; "
    text += _mma(kind, "f0, f1, f2, f3", "a, a, a, a", ", ".join(x[:2]), ", ".join(y))
    return text + _mma(kind, ", ".join(out), "a, a, a, a", ", ".join(x[2:]), "f0, f1, f2, f3") + "}"


def _paired() -> str:
    """Words of numbers 0 1, 2 3, 4 5, 6 7 as words of 0 2, 1 3, 4 6, 5 7."""
    out, x = _operands(2)
    text = "{ .reg .b32 x<4>; " + "".join(f"mov.b32 x{i}, {x[i]}; " for i in range(4))
    for i in (0, 2):
        text += f"prmt.b32 {out[i]}, x{i}, x{i + 1}, 0x5410; prmt.b32 {out[i + 1]}, x{i}, x{i + 1}, 0x7632; "
    return text + "}"


def _args(words: int, numbers: int) -> tl.constexpr:
    return tl.constexpr(",".join(["=f"] * 4 + ["r"] * (4 * words) + ["f"] * (4 * numbers)))


_FOUR, _FOUR_ARGS = tl.constexpr(tuple(map(_four, _KINDS))), _args(4, 3)
_EIGHT, _EIGHT_ARGS = tl.constexpr(tuple(map(_eight, _KINDS))), _args(4, 2)
_SUM, _SUM_ARGS = tl.constexpr(tuple(map(_sum, _KINDS))), _args(1, 1)
_PAIRED, _PAIRED_ARGS = tl.constexpr(_paired()), tl.constexpr("=r,=r,=r,=r,r,r,r,r")


@triton.jit
def paired(x, packs: tl.constexpr):
    """Tokens [threads, 4], two numbers a word, as `eight` takes them."""
    if packs:
        x = tl.inline_asm_elementwise(_PAIRED, _PAIRED_ARGS, [x], dtype=tl.int32, is_pure=True, pack=4)
    return x


@triton.jit
def four(y, w, shared, low, high, low_sum, high_sum, kind: tl.constexpr, packs: tl.constexpr):
    """y [threads, 4] and what 64 numbers of weights of 4 bits add: scale·Σ q·x + least·Σ x of both groups of 32.

    All are words [threads, 4], a token's of numbers 8·t to 8·t + 7 of a group. Bits 8·i + 16·h + 4·l to the third next
    of word 2·p + m have the weight of line g + 8·l for number 8·t + 4·m + 2·i + h of group p; `shared` has scales of
    line g, of line g + 8, then leasts, each of both groups in float16.
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
def eight(y, w, other, low, high, total, kind: tl.constexpr, packs: tl.constexpr):
    """y [threads, 4] and Σ q·x of 64 numbers of weights of 8 bits, 16·t to 16·t + 15 of lines g and g + 8.

    All are words [threads, 4], as they stand in a row; `total` are the sums of tokens over these numbers.
    """
    if packs:
        y = tl.inline_asm_elementwise(
            _EIGHT[1 if kind == tl.float16 else 0], _EIGHT_ARGS, [w, other, low, high, total, y],
            dtype=tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    else:
        y = plain_eight(y, w, other, low, high, kind)
    return y


@triton.jit
def sums(y, x, kind: tl.constexpr, packs: tl.constexpr):
    """y and the sums of 32 numbers of every token, as results stand, times −128 in bfloat16 and −1024 in float16."""
    if packs:
        y = tl.inline_asm_elementwise(
            _SUM[1 if kind == tl.float16 else 0], _SUM_ARGS, [x, y], dtype=tl.float32, is_pure=True, pack=4
        )
    else:
        y = plain_sums(y, x, kind)
    return y
