"""Products of weights of few bits on tensor cores, from the registers that a load puts them in.

A warp multiplies 16 lines of weights with 8 tokens. Thread 4·g + t of it has its share of lines g and g + 8, of numbers
8·t to 8·t + 7 of each 32 of token g, and of the results of both lines for tokens 2·t and 2·t + 1: four numbers, of line
g first. That is how these cores take what they multiply (`mma.m16n8k16`), so nothing moves between threads.

A whole number q of up to 8 bits is a number of 16 bits as it stands there, q·2⁻²⁴ in float16 and q·2⁻¹³³ in bfloat16:
it needs no conversion, a mask is enough. Tokens in bfloat16 come times 2⁶⁴, so that no sum is too small to be told; see
`unit`. Every function has two forms: one for the GPU, and one in Triton alone, which the interpreter runs.
"""

import triton
import triton.language as tl

KINDS = ("bf16", "f16")


def mma(kind: str, into: str, a: str, b: str, c: str) -> str:
    """The instruction that adds a·b to c, all given as the names of registers."""
    return f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{{into}}}, {{{a}}}, {{{b}}}, {{{c}}};"


def listed(first: int, number: int) -> list[str]:
    """So many operands of a text of instructions, by their numbers."""
    return [f"${i}" for i in range(first, first + number)]


def nibbles(word: str) -> str:
    """The 4-bit numbers of a word as the 16-bit halves of a0 to a3, those of a1 and a3 times 16; t is overwritten."""
    return (
        f"and.b32 a0, {word}, 0x000F000F; and.b32 a1, {word}, 0x00F000F0; shr.u32 t, {word}, 8; "
        "and.b32 a2, t, 0x000F000F; and.b32 a3, t, 0x00F000F0; "
    )


def _four(kind: str, zeros: bool) -> str:
    """Both groups of 64 numbers of 16 lines: masks, two products each, and what a group shares applied to their sum."""
    out, w, shared, low, high, low_sum, high_sum, y = (listed(4 * i, 4) for i in range(8))
    text = "{ .reg .b32 a<4>, t; .reg .b16 h<2>; .reg .f32 f<4>, s<8>, y<4>; "
    for i in range(4):  # scales of lines g and g + 8, then leasts; of both groups each
        text += f"mov.b32 {{h0, h1}}, {shared[i]}; cvt.f32.f16 s{i}, h0; cvt.f32.f16 s{4 + i}, h1; "
    text += "".join(f"mov.f32 y{i}, {y[i]}; " for i in range(4))
    for group, (x, total) in enumerate(((low, low_sum), (high, high_sum))):
        for half in range(2):
            word = w[2 * group + half]
            text += nibbles(word)
            before = "f0, f1, f2, f3" if half else "0f00000000, 0f00000000, 0f00000000, 0f00000000"
            text += mma(kind, "f0, f1, f2, f3", "a0, a1, a2, a3", ", ".join(x[2 * half : 2 * half + 2]), before)
        for i in range(4):
            scale, other = f"s{4 * group + i // 2}", f"s{4 * group + 2 + i // 2}"
            if zeros:
                text += f"fma.rn.f32 f{i}, {total[i]}, {other}, f{i}; fma.rn.f32 y{i}, f{i}, {scale}, y{i}; "
            else:
                text += f"fma.rn.f32 y{i}, f{i}, {scale}, y{i}; fma.rn.f32 y{i}, {total[i]}, {other}, y{i}; "
    return text + "".join(f"mov.f32 {out[i]}, y{i}; " for i in range(4)) + "}"


def _sum(kind: str) -> str:
    """The sums of a group of every token, times 16 for lines g + 8."""
    x, ones = listed(4, 4), "a, b, a, b"
    text = "{ .reg .b32 a, b; .reg .f32 f<4>; mov.b32 a, 0x00010001; mov.b32 b, 0x00100010; "
    text += mma(kind, "f0, f1, f2, f3", ones, f"{x[0]}, {x[1]}", "0f00000000, 0f00000000, 0f00000000, 0f00000000")
    return text + mma(kind, "$0, $1, $2, $3", ones, f"{x[2]}, {x[3]}", "f0, f1, f2, f3") + " }"


def bytes_apart(word: str, line: int) -> str:
    """The bytes of a word as the 16-bit halves of two registers, those of numbers and of the ones 8 behind."""
    return f"and.b32 a{line}, {word}, 0x00FF00FF; shr.u32 t, {word}, 8; and.b32 a{2 + line}, t, 0x00FF00FF; "


def floats_apart(word: str, line: int, kind: str) -> str:
    """The same of floats of 8 bits: the sign in front, and the rest where an exponent of more bits ends."""
    up, down, mask = (4, 4, "0x07F007F0") if kind == "bf16" else (7, 1, "0x3F803F80")
    text = f"shl.b32 t, {word}, 8; and.b32 t, t, 0x80008000; shl.b32 a{line}, {word}, {up}; "
    text += f"and.b32 a{line}, a{line}, {mask}; or.b32 a{line}, a{line}, t; "
    text += f"and.b32 t, {word}, 0x80008000; shr.u32 a{2 + line}, {word}, {down}; "
    return text + f"and.b32 a{2 + line}, a{2 + line}, {mask}; or.b32 a{2 + line}, a{2 + line}, t; "


def _eight(kind: str, floats: bool) -> str:
    """64 numbers of 16 lines in 8 bits: masks and four products, one after the other, and what was there."""
    out, first, second, low, high, begin, y = (listed(4 * i, 4) for i in range(7))
    text = "{ .reg .b32 a<4>, t; .reg .f32 f<4>; " + "".join(f"mov.f32 f{i}, {begin[i]}; " for i in range(4))
    for words, x in ((first, low), (second, high)):
        for half in range(2):
            for line in range(2):
                word = words[2 * half + line]
                text += floats_apart(word, line, kind) if floats else bytes_apart(word, line)
            numbers = ", ".join(x[2 * half : 2 * half + 2])
            text += mma(kind, "f0, f1, f2, f3", "a0, a1, a2, a3", numbers, "f0, f1, f2, f3")
    text += "".join(f"add.rn.f32 f{i}, f{i}, {y[i]}; " for i in range(4))
    return text + "".join(f"mov.f32 {out[i]}, f{i}; " for i in range(4)) + "}"


def _offset(kind: str) -> str:
    """The sums of both groups of every token, times −128."""
    low, high, same = listed(4, 4), listed(8, 4), "a, a, a, a"
    text = "{ .reg .b32 a; .reg .f32 f<4>; mov.b32 a, 0x80808080; "
    before = "0f00000000, 0f00000000, 0f00000000, 0f00000000"
    for x in (low[:2], low[2:], high[:2], high[2:]):
        text += mma(kind, "f0, f1, f2, f3", same, ", ".join(x), before)
        before = "f0, f1, f2, f3"
    return text + "".join(f"mov.f32 ${i}, f{i}; " for i in range(4)) + "}"


_FOUR = tl.constexpr(tuple(_four(kind, zeros) for zeros in (False, True) for kind in KINDS))
_EIGHT = tl.constexpr(tuple(_eight(kind, floats) for floats in (False, True) for kind in KINDS))
_OFFSET = tl.constexpr(tuple(map(_offset, KINDS)))
_EIGHT_ARGS = tl.constexpr("=f,=f,=f,=f," + ",".join(["r"] * 16 + ["f"] * 8))
_OFFSET_ARGS = tl.constexpr("=f,=f,=f,=f,r,r,r,r,r,r,r,r")
_SUM = tl.constexpr(tuple(map(_sum, KINDS)))
_FOUR_ARGS = tl.constexpr("=f,=f,=f,=f," + ",".join(["r"] * 16 + ["f"] * 12))
_SUM_ARGS = tl.constexpr("=f,=f,=f,=f,r,r,r,r")


@triton.jit
def enlarged(x, kind: tl.constexpr, packs: tl.constexpr):
    """Tokens [threads, 4] of two numbers a word, times 2⁶⁴ if they are bfloat16."""
    if packs and kind == tl.bfloat16:
        return tl.inline_asm_elementwise(
            "{ .reg .b32 t; mov.b32 t, 0x5F805F80; mul.rn.bf16x2 $0, $1, t; }",
            "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1,
        )  # fmt: skip
    return x


@triton.jit
def unit(kind: tl.constexpr, packs: tl.constexpr, floats: tl.constexpr = False):
    """What one is in the results of these products."""
    if not packs:
        return 1.0
    if floats and kind == tl.float16:
        return 1.0 / 256.0
    if floats:
        return 1.0 / 72057594037927936.0  # 2⁻⁵⁶
    if kind == tl.float16:
        return 1.0 / 16777216.0  # 2⁻²⁴
    return 1.0 / 590295810358705651712.0  # 2⁻⁶⁹


@triton.jit
def four(
    y, w, shared, low, high, low_sum, high_sum, kind: tl.constexpr, zeros: tl.constexpr, packs: tl.constexpr
):  # fmt: skip
    """y [threads, 4] and what 64 numbers of weights of 4 bits add: scale·Σ q·x + least·Σ x of both groups of 32.

    If there are `zeros`, they stand, as −zero, in place of the leasts: scale·(Σ q·x − zero·Σ x).

    All are words [threads, 4]. Bits 8·i + 16·h + 4·l to the third next of word 2·p + m have the weight of line
    g + 8·l for number 8·t + 4·m + 2·i + h of group p; `shared` has scales of line g, of line g + 8, then leasts, each
    of both groups in float16. Lines g + 8 come out times 16.
    """
    if packs:
        which: tl.constexpr = (1 if kind == tl.float16 else 0) + (2 if zeros else 0)
        return tl.inline_asm_elementwise(
            _FOUR[which], _FOUR_ARGS, [w, shared, low, high, low_sum, high_sum, y],
            dtype=tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    first, second = _halves(w)
    y = _grouped(y, first, shared, _numbers(low, kind), low_sum, zeros)
    return _grouped(y, second, shared >> 16, _numbers(high, kind), high_sum, zeros)


@triton.jit
def eight(y, first, second, low, high, begin, kind: tl.constexpr, packs: tl.constexpr, floats: tl.constexpr = False):
    """y [threads, 4], what sums begin with, and Σ q·x of 64 numbers of weights of 8 bits, of two groups of 32.

    Bits 8·i + 16·h to the seventh next of word 2·m + l of a group have the weight of line g + 8·l for number
    8·t + 4·m + 2·i + h: a whole number, or one of the `floats` with 4 bits of exponent (float8_e4m3fn).
    """
    if packs:
        which: tl.constexpr = (1 if kind == tl.float16 else 0) + (2 if floats else 0)
        return tl.inline_asm_elementwise(
            _EIGHT[which], _EIGHT_ARGS, [first, second, low, high, begin, y], dtype=tl.float32, is_pure=True, pack=4
        )
    low, high = _numbers(low, kind), _numbers(high, kind)
    return y + (begin + _met_bytes(first, low, floats) + _met_bytes(second, high, floats))


@triton.jit
def offset(low, high, kind: tl.constexpr, packs: tl.constexpr):
    """−128 times the sums over both groups of every token, as results stand: bytes are their numbers and 128."""
    if packs:
        which: tl.constexpr = 1 if kind == tl.float16 else 0
        return tl.inline_asm_elementwise(
            _OFFSET[which], _OFFSET_ARGS, [low, high], dtype=tl.float32, is_pure=True, pack=4
        )
    ones = tl.full(low.shape, 0x01010101, tl.int32)
    return -128.0 * (_met_bytes(ones, _numbers(low, kind), False) + _met_bytes(ones, _numbers(high, kind), False))


@triton.jit
def sums(x, kind: tl.constexpr, packs: tl.constexpr):
    """The sums over a group of every token x [threads, 4], as results stand; times 16 for lines g + 8."""
    if packs:
        which: tl.constexpr = 1 if kind == tl.float16 else 0
        return tl.inline_asm_elementwise(_SUM[which], _SUM_ARGS, [x], dtype=tl.float32, is_pure=True, pack=4)
    ones, _ = _halves(tl.full(x.shape, 0x11111111, tl.int32))
    return _met(ones, _numbers(x, kind))


@triton.jit
def _halves(x):
    """The first two and the last two of four."""
    return tl.split(tl.permute(tl.reshape(x, [x.shape[0], 2, 2]), (0, 2, 1)))


@triton.jit
def _numbers(x, kind: tl.constexpr):
    """The 32 numbers of a group of every token of a warp [warps, 1, tokens, 32]."""
    each = tl.reshape(x, [x.shape[0], 4, 1]) >> (16 * tl.arange(0, 2))[None, None, :]
    return tl.reshape(each.to(tl.int16).to(kind, bitcast=True).to(tl.float32), [x.shape[0] // 32, 1, 8, 32])


@triton.jit
def _met(w, x):
    """Σ q·x as results stand, of two words of weights of every thread and the numbers of tokens."""
    part = tl.arange(0, 4)
    q = tl.reshape(w, [w.shape[0], 2, 1]) >> (8 * (part // 2) + 16 * (part % 2))[None, None, :]
    own = tl.reshape((q & 15).to(tl.float32), [w.shape[0] // 32, 8, 1, 32])
    other = tl.reshape((q & 240).to(tl.float32), [w.shape[0] // 32, 8, 1, 32])
    both = tl.join(tl.reshape(tl.sum(own * x, 3), w.shape), tl.reshape(tl.sum(other * x, 3), w.shape))
    return tl.reshape(tl.permute(both, (0, 2, 1)), [w.shape[0], 4])


@triton.jit
def _met_bytes(w, x, floats: tl.constexpr):
    """Σ q·x as results stand, of four words of bytes of every thread and the numbers of tokens."""
    part = tl.arange(0, 4)
    q = tl.reshape(w, [w.shape[0], 2, 2, 1]) >> (8 * (part // 2) + 16 * (part % 2))[None, None, None, :]
    if floats:  # bits of float32, whose exponent counts from elsewhere
        q = (((q & 127) << 20) | ((q & 128) << 24)).to(
            tl.float32, bitcast=True
        ) * 1329227995784915872903807060280344576.0
    else:
        q = (q & 255).to(tl.float32)
    own, other = tl.split(tl.permute(q, (0, 1, 3, 2)))  # of lines g and g + 8
    own = tl.sum(tl.reshape(own, [w.shape[0] // 32, 8, 1, 32]) * x, 3)
    other = tl.sum(tl.reshape(other, [w.shape[0] // 32, 8, 1, 32]) * x, 3)
    both = tl.join(tl.reshape(own, [w.shape[0], 2]), tl.reshape(other, [w.shape[0], 2]))
    return tl.reshape(tl.permute(both, (0, 2, 1)), [w.shape[0], 4])


@triton.jit
def _grouped(y, w, shared, x, total, zeros: tl.constexpr):
    """y with the terms of one group."""
    both = shared.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    both = tl.broadcast_to(tl.reshape(both, [y.shape[0], 4, 1]), [y.shape[0], 4, 2])
    scale, other = tl.split(tl.permute(tl.reshape(both, [y.shape[0], 2, 4]), (0, 2, 1)))
    if zeros:
        return y + scale * (_met(w, x) + other * total)
    return y + scale * _met(w, x) + other * total
