"""Products of an 8B layer with weights of 4 and 8 bits, by every cut: microseconds, errors, and bits in any company.

    python bench/few_bits.py [--bits int4,int8,fp8] [--tokens 1,8,32] [--products qkv,out,…] [--warm I/N] [--json FILE]

Each product is timed alone, with weights that no cache holds, medians of graph replays. `--warm` compiles a part of all
cuts and times nothing: run some at once before.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from gpu import bandwidth
from mixture import blocks_of_floats
from record import save
from torch import Tensor

from unspool.kernels.fewbits import Split, alone_for, product, share_for
from unspool.kernels.tune import copies, microseconds
from unspool.runtime.network.quantised import Int4Linear, TiledFloat8Linear, TiledInt8Linear

SIZES = {"qkv": (6144, 4096), "out": (4096, 4096), "gate_up": (14336, 4096), "down": (4096, 14336)}
KINDS = {"int4": Int4Linear.of, "int8": TiledInt8Linear.of, "fp8": blocks_of_floats}
FEW = {
    "qkv": [Split(4, 4), Split(8, 2), Split(4, 2), Split(8, 4)],
    "out": [Split(8, 4), Split(8, 2), Split(4, 4)],
    "gate_up": [Split(4, 1), Split(2, 2), Split(2, 4), Split(4, 2), Split(2, 1)],
    "down": [Split(8, 4), Split(8, 2), Split(16, 2), Split(8, 7)],
}
ALONE = {
    "qkv": [Split(8, 1), Split(4, 2), Split(4, 1)],
    "out": [Split(8, 1), Split(8, 2), Split(16, 1)],
    "gate_up": [Split(2, 1), Split(1, 2), Split(4, 1)],
    "down": [Split(8, 1), Split(16, 1)],
}
MANY = [Split(4, 1, 2), Split(8, 1, 2), Split(8, 1), Split(4, 1), Split(4, 2)]


def cuts(name: str, bits: str, n: int) -> list[Split]:
    """What is tried, the table's own first."""
    (width, depth), gated = SIZES[name], name == "gate_up"
    if bits == "int4" and n == 1:
        return list(dict.fromkeys((alone_for(depth, gated), *ALONE[name])))
    return list(
        dict.fromkeys((share_for(width, n, gated, 4 if bits == "int4" else 8), *(FEW[name] if n <= 8 else MANY)))
    )


def launch(name: str, matrix: Any, x: Tensor, residual: Tensor, cut: Split) -> Tensor:
    """One product as a layer has it."""
    given = matrix.weight, getattr(matrix, "scale", None), matrix.bias
    width, floats = SIZES[name][0], isinstance(matrix, TiledFloat8Linear)
    if name == "gate_up":
        return product(x, *given, width=width, activation="silu", floats=floats, cut=cut)
    return product(x, *given, width=width, residual=residual, floats=floats, cut=cut)


def off(name: str, matrix: Any, x: Tensor, residual: Tensor, cut: Split) -> tuple[float, bool]:
    """The error against float64, in parts of the result, and whether a token has the same bits alone."""
    width = SIZES[name][0]
    want = F.linear(x.double(), matrix.whole(torch.float64))
    want = F.silu(want[:, :width]) * want[:, width:] if name == "gate_up" else want + residual.double()
    found = launch(name, matrix, x, residual, cut)
    alone = launch(name, matrix, x[-1:].contiguous(), residual[-1:].contiguous(), Split(cut.warps, 1))
    return float((found.double() - want).norm() / want.norm()), bool(torch.equal(found[-1:], alone))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", default="int4,int8,fp8")
    parser.add_argument("--tokens", default="1,8,32")
    parser.add_argument("--products", default=",".join(SIZES))
    parser.add_argument("--warm", metavar="I/N")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    torch.manual_seed(0)
    tokens, names = [int(n) for n in args.tokens.split(",")], args.products.split(",")
    found: dict[str, Any] = {}
    rate = 1.0 if args.warm else bandwidth()
    for bits in args.bits.split(","):
        for name in names:
            width, depth = SIZES[name]
            rows = 2 * width if name == "gate_up" else width
            matrix = KINDS[bits](torch.randn(rows, depth, device="cuda") * depth**-0.5, None)
            cases = [(n, cut) for n in tokens for cut in cuts(name, bits, n)]
            if args.warm:
                part, parts = map(int, args.warm.split("/"))
                for n, cut in cases[part::parts]:
                    warm(name, matrix, n, depth, cut)
                continue
            number = copies(matrix.weight.nbytes)
            weights = [matrix.weight.clone() for _ in range(number)]
            again = [type(matrix)(**{**vars(matrix), "weight": weight}) for weight in weights]
            least = 1e6 * matrix.weight.nbytes / rate
            for n, cut in cases:
                x, r = (torch.randn(n, size, dtype=torch.bfloat16, device="cuda") for size in (depth, width))
                try:
                    error, same = off(name, matrix, x, r, cut)
                    spent = microseconds([partial(launch, name, m, x, r, cut) for m in again])
                except Exception as failure:  # a cut that does not fit
                    print(f"{bits} {name} n={n} {cut}: {type(failure).__name__} {failure}"[:200], flush=True)
                    continue
                key = f"{bits} {name} {n} {cut.warps},{cut.ahead},{cut.tiles}"
                found[key] = {"us": spent, "floor_us": least, "off": error, "same": same}
                times = f"{spent:.1f} μs, bytes {least:.1f}"
                print(f"{key}: {times}; off {error:.1e}, same {same}", flush=True)
    if args.json:
        save(args.json, found)


def warm(name: str, matrix: Any, n: int, depth: int, cut: Split) -> None:
    """Compile what a case needs."""
    x, r = (torch.randn(n, size, dtype=torch.bfloat16, device="cuda") for size in (depth, SIZES[name][0]))
    try:
        off(name, matrix, x, r, cut)
    except Exception as failure:  # a cut that does not fit
        print(f"{name} n={n} {cut}: {type(failure).__name__}"[:200], flush=True)


if __name__ == "__main__":
    main()
