"""Instructions for tensor cores, carried out one by one for the 32 threads of a warp: what a GPU would compute.

Triton's interpreter runs another form of these functions, which says nothing about the texts that a GPU gets.
"""

import re

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from unspool.kernels import alone, fragments
from unspool.kernels import spread as spread_
from unspool.runtime.network.quantised import Int4Linear, TiledFloat8Linear, TiledInt8Linear

LANE = np.arange(32)
G, T = LANE // 4, LANE % 4
UNIT = {"f16": 2.0**-24, "bf16": 2.0**-69}
FLOAT_UNIT = {"f16": 2.0**-8, "bf16": 2.0**-56}


def halves(words, kind):
    """Both numbers of every word [32, 2]."""
    parts = torch.from_numpy(np.stack((words & 0xFFFF, words >> 16), 1).astype(np.uint16).view(np.int16))
    return parts.view(torch.float16 if kind == "f16" else torch.bfloat16).double().numpy()


class Warp:
    """Registers of 32 threads, and the few instructions that the texts have."""

    def __init__(self, operands):
        self.held = {f"${i}": value for i, value in enumerate(operands)}

    def of(self, name):
        if name.isdecimal() or name.startswith("0x"):
            return np.full(32, int(name, 0), np.uint32)
        return np.zeros(32) if name.startswith("0f") else self.held[name]

    def run(self, text):
        for line in text.strip("{} ").split(";"):
            line = line.strip()
            if not line or line.startswith(".reg"):
                continue
            name, rest = line.split(" ", 1)
            self.step(name, re.findall(r"\{[^}]*\}|[^,\s]+", rest))
        return self

    def step(self, name, at):
        if name.startswith("mma"):
            kind = name.split(".")[-2]
            into, *given = ([part.strip() for part in each.strip("{}").split(",")] for each in at)
            for register, value in zip(into, self.mma(kind, *given), strict=True):
                self.held[register] = value
        elif name == "mov.b32" and at[0].startswith("{"):
            low, high = (part.strip() for part in at[0].strip("{}").split(","))
            word = self.of(at[1])
            self.held[low], self.held[high] = word & 0xFFFF, word >> 16
        elif name in ("mov.b32", "mov.f32"):
            self.held[at[0]] = self.of(at[1])
        elif name == "cvt.f32.f16":
            self.held[at[0]] = halves(self.of(at[1]), "f16")[:, 0]
        else:
            a, b, *c = (self.of(part) for part in at[1:])
            acts = {"and.b32": np.bitwise_and, "or.b32": np.bitwise_or, "add.rn.f32": np.add}
            acts |= {"shr.u32": np.right_shift, "shl.b32": np.left_shift}
            self.held[at[0]] = a * b + c[0] if name == "fma.rn.f32" else acts[name](a, b)

    def mma(self, kind, a, b, c):
        first, second, sums = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
        for register, name in enumerate(a):
            pair = halves(self.of(name), kind)
            for h in range(2):
                first[G + 8 * (register % 2), 2 * T + 8 * (register // 2) + h] = pair[:, h]
        for register, name in enumerate(b):
            pair = halves(self.of(name), kind)
            for h in range(2):
                second[2 * T + 8 * register + h, G] = pair[:, h]
        for i, name in enumerate(c):
            sums[G + 8 * (i // 2), 2 * T + i % 2] = self.of(name)
        sums += first @ second
        return [sums[G + 8 * (i // 2), 2 * T + i % 2] for i in range(4)]


def words(tensor):
    return [column.astype(np.uint32) for column in tensor.numpy().view(np.uint32).reshape(-1, 4).T]


def tokens(n, depth, kind):
    torch.manual_seed(depth)
    x = torch.randn(n, depth).to(torch.float16 if kind == "f16" else torch.bfloat16)
    large = x if kind == "f16" else (x.float() * 2.0**64).bfloat16()  # as `enlarged` has it
    return x, large.view(torch.int32)


def some(rows, depth, zeros):
    torch.manual_seed(rows + depth)
    q, scale = torch.randint(16, (rows, depth // 32, 32), dtype=torch.uint8), torch.rand(rows, depth // 32).half()
    other = -torch.randint(16, scale.shape).half() if zeros else -torch.rand(scale.shape).half()
    return Int4Linear.stored(q, scale, other, None, zeros)


def put(results, unit, wide=1.0):
    """Results of lines [16, 8], those of lines g + 8 over `wide`."""
    found = np.zeros((16, 8))
    for i in range(4):
        found[G + 8 * (i // 2), 2 * T + i % 2] = results[i] / unit / (wide if i > 1 else 1.0)
    return found


def at(i, texts, kind):
    return texts.value[fragments.KINDS.index(kind) + i]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("zeros", [False, True])
def test_four_bits_meet_eight_tokens(kind, zeros):
    kept, (x, given) = some(16, 64, zeros), tokens(8, 64, kind)
    w, shared = kept.weight[0, 0, :128].view(32, 4), kept.weight[0, 0, 128:].view(8, 4)[G]
    low, high = (torch.stack([given[g, 16 * p + 4 * t :][:4] for g, t in zip(G, T, strict=True)]) for p in range(2))
    sums = [Warp([None] * 4 + words(part)).run(at(0, fragments._SUM, kind)) for part in (low, high)]
    totals = [[warp.of(f"${i}") for i in range(4)] for warp in sums]
    operands = (
        [None] * 4 + words(w) + words(shared) + words(low) + words(high) + totals[0] + totals[1] + [np.zeros(32)] * 4
    )
    warp = Warp(operands).run(at(2 * zeros, fragments._FOUR, kind))
    want = kept.whole(torch.float64).numpy() @ x.double().numpy().T
    np.testing.assert_allclose(put([warp.of(f"${i}") for i in range(4)], UNIT[kind], 16.0), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_eight_bits_meet_eight_tokens(kind):
    torch.manual_seed(3)
    q = torch.randint(-128, 128, (16, 64), dtype=torch.int8)
    kept, (x, given) = TiledInt8Linear.stored(q, torch.ones(16), None), tokens(8, 64, kind)
    first, second = kept.weight[0, 0].view(2, 32, 4)
    low, high = (torch.stack([given[g, 16 * p + 4 * t :][:4] for g, t in zip(G, T, strict=True)]) for p in range(2))
    begun = Warp([None] * 4 + words(low) + words(high)).run(at(0, fragments._OFFSET, kind))
    operands = [None] * 4 + words(first) + words(second) + words(low) + words(high)
    operands += [begun.of(f"${i}") for i in range(4)] + [np.zeros(32)] * 4
    warp = Warp(operands).run(at(0, fragments._EIGHT, kind))
    want = q.double().numpy() @ x.double().numpy().T
    np.testing.assert_allclose(put([warp.of(f"${i}") for i in range(4)], UNIT[kind]), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_floats_of_eight_bits_meet_eight_tokens(kind):
    """All of them, subnormal ones too, but for the two codes that are no numbers."""
    q = torch.arange(1024).view(16, 64).to(torch.uint8)
    q[(q & 127) == 127] = 0
    q = q.view(torch.float8_e4m3fn)
    kept, (x, given) = TiledFloat8Linear.stored(q, torch.ones(16), None), tokens(8, 64, kind)
    first, second = kept.weight[0, 0].view(2, 32, 4)
    low, high = (torch.stack([given[g, 16 * p + 4 * t :][:4] for g, t in zip(G, T, strict=True)]) for p in range(2))
    operands = [None] * 4 + words(first) + words(second) + words(low) + words(high) + [np.zeros(32)] * 8
    warp = Warp(operands).run(at(2, fragments._EIGHT, kind))
    want = q.double().numpy() @ x.double().numpy().T
    np.testing.assert_allclose(put([warp.of(f"${i}") for i in range(4)], FLOAT_UNIT[kind]), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("zeros", [False, True])
def test_eight_groups_of_one_token_come_out_apart(kind, zeros):
    kept, (x, given) = some(16, 256, zeros), tokens(1, 256, kind)
    pieces = kept.weight[0]
    shared = torch.stack([pieces[t, 128 + 4 * g :][:4] for g, t in zip(G, T, strict=True)])
    held = given[0].view(32, 4)
    low, high = (torch.where(torch.from_numpy(G)[:, None] == torch.arange(4) + 4 * i, -1, 0).int() for i in range(2))
    total = Warp([None] * 4 + words(held)).run(at(0, alone._TOTAL, kind))
    operands = [None] * 4
    for part in (*(pieces[j, :128].view(32, 4) for j in range(4)), shared, held, low, high):
        operands += words(part)
    operands += [total.of(f"${i}") for i in range(4)] + [np.zeros(32)] * 4
    warp = Warp(operands).run(at(2 * zeros, alone._MET, kind))
    found = put([warp.of(f"${i}") for i in range(4)], UNIT[kind], 16.0)
    groups = (kept.whole(torch.float64) * x.double()).view(16, 8, 32).sum(2).numpy()
    np.testing.assert_allclose(found, groups, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("zeros", [False, True])
def test_four_bits_spread_once_meet_tokens_as_they_do_otherwise(kind, zeros):
    kept, (x, given) = some(16, 64, zeros), tokens(8, 64, kind)
    w, shared = kept.weight[0, 0, :128].view(32, 4), kept.weight[0, 0, 128:].view(8, 4)[G]
    low, high = (torch.stack([given[g, 16 * p + 4 * t :][:4] for g, t in zip(G, T, strict=True)]) for p in range(2))
    totals = []
    for part in (low, high):
        warp = Warp([None] * 4 + words(part)).run(at(0, fragments._SUM, kind))
        totals += [warp.of(f"${i}") for i in range(4)]
    spread = Warp([None] * 16 + words(w)).run(spread_._SPREAD_FOUR.value)
    shares = Warp([None] * 8 + words(shared)).run(spread_._SHARES_TEXT.value)
    operands = [None] * 4 + [spread.of(f"${i}") for i in range(16)] + [shares.of(f"${i}") for i in range(8)]
    operands += words(low) + words(high) + totals + [np.zeros(32)] * 4
    warp = Warp(operands).run(at(2 * zeros, spread_._MET_FOUR, kind))
    want = kept.whole(torch.float64).numpy() @ x.double().numpy().T
    np.testing.assert_allclose(put([warp.of(f"${i}") for i in range(4)], UNIT[kind], 16.0), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("floats", [False, True])
def test_eight_bits_spread_once_meet_tokens_as_they_do_otherwise(kind, floats):
    torch.manual_seed(4)
    q = torch.randint(0, 100, (16, 64), dtype=torch.int8)
    q[::3] -= 120  # but none of the two codes that are no floats
    kept = (TiledFloat8Linear if floats else TiledInt8Linear).stored(q, torch.ones(16), None)
    x, given = tokens(8, 64, kind)
    first, second = kept.weight[0, 0].view(2, 32, 4)
    low, high = (torch.stack([given[g, 16 * p + 4 * t :][:4] for g, t in zip(G, T, strict=True)]) for p in range(2))
    begun = Warp([None] * 4 + words(low) + words(high)).run(at(0, fragments._OFFSET, kind))
    spread = Warp([None] * 16 + words(first) + words(second)).run(at(2 * floats, spread_._SPREAD_EIGHT, kind))
    operands = [None] * 4 + [spread.of(f"${i}") for i in range(16)] + words(low) + words(high)
    operands += [np.zeros(32) if floats else begun.of(f"${i}") for i in range(4)] + [np.zeros(32)] * 4
    warp = Warp(operands).run(at(0, spread_._MET_EIGHT, kind))
    want = (q.view(torch.float8_e4m3fn) if floats else q).double().numpy() @ x.double().numpy().T
    unit = (FLOAT_UNIT if floats else UNIT)[kind]
    np.testing.assert_allclose(put([warp.of(f"${i}") for i in range(4)], unit), want, rtol=1e-9, atol=1e-9)
