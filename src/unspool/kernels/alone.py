"""A matrix of 4-bit weights times one token: eight groups of weights take the places of eight tokens.

Tensor cores meet 16 lines of weights with 8 tokens at a time (see `fragments`). One token would leave seven of eight
results idle, and have every sum scaled as soon as a group of 32 numbers ends. Here a result is a group's: what the
token has of group c stands in column c, and everything else of that column is zero. So the sums of 16 lines and 8
groups come out each in a place of its own, and scales are applied to 256 numbers at once.
"""
# mypy: disable-error-code="assignment, misc"
# Tuples of tensors grow while Triton unrolls a loop.

import triton
import triton.language as tl

from .draft_chain import start, wait
from .epilogue import finish, gated
from .fragments import enlarged, listed, mma, nibbles, unit

BLOCK = 4  # pieces of 64 numbers that are met at once
_KINDS = ("bf16", "f16")
_NONE = ", ".join(["0f00000000"] * 4)


def _met(kind: str, zeros: bool) -> str:
    """Eight groups of 32 numbers of 16 lines: masks, two products each in two chains, and what the groups share."""
    out, *words, shared, x, low, high, total, y = (listed(4 * i, 4) for i in range(11))
    text = "{ .reg .b32 a<4>, b<2>, t; .reg .b16 h<2>; .reg .f32 f<4>, g<4>, s<8>; "
    for i in range(4):  # scales of line g, then of line g + 8, of both groups each; then leasts
        text += f"mov.b32 {{h0, h1}}, {shared[i]}; cvt.f32.f16 s{2 * i}, h0; cvt.f32.f16 s{2 * i + 1}, h1; "
    begun = {"f": _NONE, "g": _NONE}
    for group in range(8):
        own, mask = "fg"[group % 2], (low + high)[group]
        into = ", ".join(f"{own}{i}" for i in range(4))
        for half in range(2):
            word = words[group // 2][2 * (group % 2) + half]
            text += nibbles(word)
            text += "".join(f"and.b32 b{i}, {x[2 * half + i]}, {mask}; " for i in range(2))
            text += mma(kind, into, "a0, a1, a2, a3", "b0, b1", begun[own])
            begun[own] = into
    for i in range(4):  # of the two chains one has the sum of this place's group, the other nothing
        text += f"add.rn.f32 f{i}, f{i}, g{i}; "
        if zeros:
            text += f"fma.rn.f32 f{i}, {total[i]}, s{4 + i}, f{i}; fma.rn.f32 f{i}, f{i}, s{i}, {y[i]}; "
        else:
            text += f"fma.rn.f32 f{i}, f{i}, s{i}, {y[i]}; fma.rn.f32 f{i}, {total[i]}, s{4 + i}, f{i}; "
    return text + "".join(f"mov.f32 {out[i]}, f{i}; " for i in range(4)) + "}"


def _total(kind: str) -> str:
    """The sums of all groups, times 16 for lines g + 8."""
    x, ones = listed(4, 4), "a, b, a, b"
    text = "{ .reg .b32 a, b; .reg .f32 f<4>; mov.b32 a, 0x00010001; mov.b32 b, 0x00100010; "
    text += mma(kind, "f0, f1, f2, f3", ones, f"{x[0]}, {x[1]}", _NONE)
    text += mma(kind, "f0, f1, f2, f3", ones, f"{x[2]}, {x[3]}", "f0, f1, f2, f3")
    return text + "".join(f"mov.f32 ${i}, f{i}; " for i in range(4)) + "}"


_MET = tl.constexpr(tuple(_met(kind, zeros) for zeros in (False, True) for kind in _KINDS))
_TOTAL = tl.constexpr(tuple(map(_total, _KINDS)))
_MET_ARGS = tl.constexpr("=f,=f,=f,=f," + ",".join(["r"] * 32 + ["f"] * 8))
_TOTAL_ARGS = tl.constexpr("=f,=f,=f,=f,r,r,r,r")


@triton.jit
def _totals(x, kind: tl.constexpr, packs: tl.constexpr):
    """The sums of eight groups as results stand: of groups 2·t and 2·t + 1, of line g and then of line g + 8."""
    if packs:
        which: tl.constexpr = 1 if kind == tl.float16 else 0
        return tl.inline_asm_elementwise(_TOTAL[which], _TOTAL_ARGS, [x], dtype=tl.float32, is_pure=True, pack=4)
    each = tl.reshape(tl.sum(_numbers(x, kind), 2), [x.shape[0] // 32, 1, 4, 1, 2])
    line = tl.where(tl.arange(0, 2) == 1, 16.0, 1.0)[None, None, None, :, None]
    return tl.reshape(tl.broadcast_to(each * line, [x.shape[0] // 32, 8, 4, 2, 2]), x.shape)


@triton.jit
def _terms(
    y, w0, w1, w2, w3, shared, x, low, high, total, kind: tl.constexpr, zeros: tl.constexpr, packs: tl.constexpr
):  # fmt: skip
    """y [threads, 4] with the terms of eight groups; words and what is shared as `fragments.four` has them."""
    if packs:
        which: tl.constexpr = (1 if kind == tl.float16 else 0) + (2 if zeros else 0)
        return tl.inline_asm_elementwise(
            _MET[which], _MET_ARGS, [w0, w1, w2, w3, shared, x, low, high, total, y],
            dtype=tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    numbers, f = _numbers(x, kind), tl.zeros(y.shape, tl.float32)
    f = _placed(f, w0, numbers, 0)
    f = _placed(f, w1, numbers, 1)
    f = _placed(f, w2, numbers, 2)
    f = _placed(f, w3, numbers, 3)
    both = tl.reshape(shared, [y.shape[0], 4, 1]) >> (16 * tl.arange(0, 2))[None, None, :]
    both = tl.reshape(both.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32), [y.shape[0], 2, 4])
    scale, other = tl.split(tl.permute(both, (0, 2, 1)))
    return y + scale * (f + other * total) if zeros else y + scale * f + other * total


@triton.jit
def _numbers(x, kind: tl.constexpr):
    """What every warp has of its token [warps, groups, 32]."""
    each = tl.reshape(x, [x.shape[0], 4, 1]) >> (16 * tl.arange(0, 2))[None, None, :]
    return tl.reshape(each.to(tl.int16).to(kind, bitcast=True).to(tl.float32), [x.shape[0] // 32, 8, 32])


@triton.jit
def _placed(f, w, numbers, number: tl.constexpr):
    """Σ q·x of a piece's two groups, put where the results of these groups stand."""
    warps: tl.constexpr = w.shape[0] // 32
    part, place = tl.arange(0, 4), tl.arange(0, 4)[None, :, None, None]
    q = tl.reshape(w, [warps, 8, 4, 2, 2, 1]) >> (8 * (part // 2) + 16 * (part % 2))[None, None, None, None, None, :]
    q = tl.reshape(tl.permute(q, (0, 1, 3, 2, 4, 5)), [warps, 8, 2, 32])
    x = tl.sum(tl.where(place == number, tl.reshape(numbers, [warps, 4, 2, 32]), 0.0), 1)[:, None, :, :]
    own, other = tl.sum((q & 15).to(tl.float32) * x, 3), tl.sum((q & 240).to(tl.float32) * x, 3)
    both = tl.reshape(tl.permute(tl.join(own, other), (0, 1, 3, 2)), [warps, 8, 1, 4])  # lines, then groups
    found = tl.where(tl.arange(0, 4)[None, None, :, None] == number, both, 0.0)
    return f + tl.reshape(found, f.shape)


@triton.jit
def _words(lines, shared, at, block, total, size: tl.constexpr, even: tl.constexpr):
    """A block of every warp: the words of its four pieces and what they share, of every tile."""
    words = ()
    here = (block + at < total)[:, None]
    for r in tl.static_range(len(lines)):
        for j in tl.static_range(5):
            spot = lines[r] + at * (4 * size) + j * size if j < 4 else shared[r] + at * (4 * size)
            if even:
                words += (tl.load(spot, eviction_policy="evict_first"),)
            else:
                words += (tl.load(spot, mask=here, other=0, eviction_policy="evict_first"),)
    return words


@triton.jit
def _line(y, warps: tl.constexpr, kind: tl.constexpr, packs: tl.constexpr):
    """The sums of 16 lines [8, 2]: line g + 8·l is at (g, l)."""
    y = tl.sum(tl.sum(tl.reshape(y, [warps, 8, 4, 2, 2]), 4), 2)
    return tl.sum(y, 0) * tl.where(tl.arange(0, 2) == 1, 1 / 16, 1.0)[None, :] / unit(kind, packs)


@triton.jit
def one_token(
    x, weight, bias, residual, out, width, total,
    kind: tl.constexpr, zeros: tl.constexpr, size: tl.constexpr, warps: tl.constexpr, ahead: tl.constexpr,
    gates: tl.constexpr, silu: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr,
    even: tl.constexpr, packs: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """16 results of one token, or of a gated product twice as many; `total` blocks of 256 numbers."""
    halves: tl.constexpr = 2 if gates else 1
    thread, each = tl.arange(0, 32 * warps), tl.arange(0, 4)[None, :]
    lane, block = thread % 32, thread // 32
    lines, shared = (), ()
    for half in tl.static_range(halves):
        tile = (tl.program_id(0) + half * tl.cdiv(width, 16)).to(tl.int64)
        place = weight + (tile * total + block)[:, None] * (4 * size) + each
        lines += (place + (lane * 4)[:, None],)
        shared += (place + (lane % 4 * size + 128 + lane // 4 * 4)[:, None],)
    waiting, given, ys = (), (), ()
    for i in tl.static_range(ahead):
        waiting += (_words(lines, shared, i * warps, block, total, size, even),)
    # Column g of a block is group g's: the threads that have it keep what the token has of that group alone.
    low = tl.where((lane // 4)[:, None] == each, -1, 0)
    high = tl.where((lane // 4)[:, None] == each + 4, -1, 0)
    source = x + (thread * 4)[:, None] + each
    for _ in tl.static_range(halves):
        ys += (tl.zeros([32 * warps, 4], tl.float32),)
    wait(chained)
    column = tl.program_id(0) * 16 + tl.arange(0, 8)[:, None] + 8 * tl.arange(0, 2)[None, :]
    exists = column < width
    more = column
    if adds:  # asked for now, it is there when the sums are
        more = tl.load(residual + column, mask=exists, other=0.0)
    for i in tl.static_range(ahead):
        given += (tl.load(source + i * warps * 128, mask=(block + i * warps < total)[:, None], other=0),)
    step: tl.constexpr = ahead * warps
    at = step
    for _ in range(0, total - step, step):
        coming, later = (), ()
        for i in tl.static_range(ahead):
            ys = _all_terms(ys, waiting[i], given[i], low, high, kind, zeros, packs)
            coming += (_words(lines, shared, at + i * warps, block, total, size, even),)
            there = (block + at + i * warps < total)[:, None]
            later += (tl.load(source + (at + i * warps) * 128, mask=there, other=0),)
        waiting, given = coming, later
        at += step
    for i in tl.static_range(ahead):
        ys = _all_terms(ys, waiting[i], given[i], low, high, kind, zeros, packs)
    start(chained)
    y = _line(ys[0], warps, kind, packs)
    if gates:
        y = gated(y, _line(ys[1], warps, kind, packs), bias, column, width, exists, kind, has_bias, silu)
    else:
        y = finish(y, bias, more, column, exists, kind, has_bias, adds)
    tl.store(out + column, y.to(kind), mask=exists)


@triton.jit
def _all_terms(ys, words, x, low, high, kind: tl.constexpr, zeros: tl.constexpr, packs: tl.constexpr):
    """The sums of all tiles with the terms of a block."""
    after, x = (), enlarged(x, kind, packs)
    total = _totals(x, kind, packs)
    for r in tl.static_range(len(ys)):
        after += (
            _terms(
                ys[r], words[5 * r], words[5 * r + 1], words[5 * r + 2], words[5 * r + 3], words[5 * r + 4],
                x, low, high, total, kind, zeros, packs,
            ),
        )  # fmt: skip
    return after
