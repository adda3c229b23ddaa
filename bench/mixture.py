"""Mixtures of experts and weights of few bits in CUDA graphs: plain steps beside the bytes that they must read.

    python bench/mixture.py [--layers 48] [--rows 1,32] [--only experts,bits,products] [--json FILE]

`experts` has the shape of Qwen3-30B-A3B and random weights, in bfloat16 with fixed and free shapes; tokens spread over
the experts as chance has it; its floor is the time to read, once, all weights but those of experts that no token chose,
and the keys, at the copy bandwidth of this run. `bits` is a step of the 8B shape with weights of 4 and 8 bits beside
bfloat16's, floats in blocks among them. `products` are the grouped products of one layer alone, cut in several ways.
Step times are medians of graph replays between CUDA events.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import torch
from experts import Noise
from gpu import EIGHT, bandwidth, step
from record import save

from unspool.kernels.grouped import CUTS, grouped
from unspool.kernels.route import arrange
from unspool.kernels.tune import microseconds
from unspool.models.codes import FloatCodes
from unspool.models.layer_shape import ExpertSpec
from unspool.models.shape import Shape
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda import stacked_experts
from unspool.runtime.cuda.batch_invariant_fused import BatchInvariantFused
from unspool.runtime.cuda.fused import Fused
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.cuda.tiled import laid_out
from unspool.runtime.network.linear import DenseLinear, Linear
from unspool.runtime.network.quantised import TiledFloat8Linear, TiledInt8Linear, rounded

CONTEXT = 1000
BLOCK, LARGEST = 128, 448.0  # numbers along a side of a block that shares a scale, and the largest float of 8 bits
MIXTURE = ExpertSpec(128, 8, 768, biased=False, scores="softmax")
THIRTY = Shape("qwen3_moe", 48, 2048, 32, 4, 128, 6144, 151936, 40960, 1e-6, 1e6, qk_norm=True, mixture=MIXTURE)


def experts(layers: int, rows: list[int], rate: float) -> dict[str, Any]:
    """Plain steps of so many texts."""
    shape = replace(THIRTY, layers=layers, windows=(None,) * layers)
    fixed = BatchInvariantFused.load(Noise(shape), torch.bfloat16, "cuda", 64_000)  # type: ignore[arg-type]
    free, found = Fused(shape, fixed.ends, fixed._stack, fixed._rotaries, 64_000), dict[str, Any]()
    for kind, network in (("fixed", fixed), ("free", free)):
        model = graph_model(network, sequences=64)
        for number in rows:
            used = bytes_of(model, shape, number)
            spent, least = step(model, CONTEXT, number, 1), 1e3 * used / rate
            found[f"{kind} {number}"] = {"ms": spent, "floor_ms": least, "times_floor": spent / least, "bytes": used}
            times = f"{spent:.3f} ms, {spent / least:.2f}× its bytes"
            print(f"30B-A3B, {layers} layers, {kind} shapes, {number} texts: {times}", flush=True)
    return found


def bytes_of(model: CachedModel, shape: Shape, rows: int) -> int:
    """What a step of so many texts reads, with the experts that such a step has chosen."""
    chosen: list[int] = []
    route, mixture = stacked_experts.choose, shape.mixture
    assert mixture is not None

    def noted(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found = route(*given)
        if not torch.cuda.is_current_stream_capturing():
            chosen.append(len(found[0][:rows].unique()))
        return found

    stacked_experts.choose = noted
    try:
        step(model, CONTEXT, rows, 1)  # a step of so many texts is tried once before it is captured
    finally:
        stacked_experts.choose = route
    one, own = 3 * mixture.hidden * shape.dim, sum(chosen[-shape.layers :])
    sizes = shape.tensors()
    rest = sum(prod(size) for name, size in sizes.items() if ".mlp.experts." not in name and "embed" not in name)
    kept = rows * CONTEXT * shape.layers * shape.kv_heads * shape.head_dim * 2
    return 2 * (rest + one * own + kept)


def blocks_of_floats(weight: torch.Tensor, bias: torch.Tensor | None) -> TiledFloat8Linear:
    """A matrix in float8_e4m3fn, with a scale for every block of 128 times 128."""
    rows, depth = weight.shape
    blocks = weight.float().view(rows // BLOCK, BLOCK, depth // BLOCK, BLOCK)
    scale = blocks.abs().amax((1, 3)) / LARGEST
    q = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn).view(rows, depth)
    made = laid_out([FloatCodes(q, scale.repeat_interleave(BLOCK, 0), BLOCK)], bias, weight.device)
    assert isinstance(made, TiledFloat8Linear)
    return made


def in_floats(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """The same, but for the head."""
    return DenseLinear(weight, bias) if len(weight) == EIGHT.vocab else blocks_of_floats(weight, bias)


def bits(rate: float, layers: int) -> dict[str, Any]:
    """Steps of the 8B shape, its matrices whole and in few bits."""
    shape, found = replace(EIGHT, layers=layers, windows=(None,) * layers), dict[str, Any]()
    for kind in ("none", "int8", "int4", "fp8"):
        made = in_floats if kind == "fp8" else rounded(kind, DenseLinear, shape.vocab, TiledInt8Linear)
        model = graph_model(Fused.load(Noise(shape), torch.bfloat16, "cuda", 40_000, made), sequences=64)  # type: ignore[arg-type]
        found[kind] = {str(rows): step(model, CONTEXT, rows, 1) for rows in (1, 8, 32)}
        times = ", ".join(f"{rows}: {ms:.3f} ms ({ms / found['none'][rows]:.2f}×)" for rows, ms in found[kind].items())
        print(f"8B, {layers} layers, {kind}: {times}", flush=True)
        del model
    return found


def products(rate: float) -> dict[str, Any]:
    """Both products of a layer of experts, for 1 and 32 tokens, by every cut: microseconds and times of their bytes."""
    first = torch.randn(128, 1536, 2048, dtype=torch.bfloat16, device="cuda") * 0.02
    down = torch.randn(128, 2048, 768, dtype=torch.bfloat16, device="cuda") * 0.02
    found: dict[str, Any] = {}
    for n in (1, 32):
        drawn = [torch.rand(n, 128, device="cuda").topk(8).indices.int() for _ in range(8)]
        mean = sum(len(chosen.unique()) for chosen in drawn) / len(drawn)
        x = torch.randn(n, 2048, dtype=torch.bfloat16, device="cuda")
        bent = torch.randn(8 * n, 768, dtype=torch.bfloat16, device="cuda")
        told = [(chosen.view(-1), None) if n == 1 else arrange(chosen, 128)[::-1] for chosen in drawn]
        for cut in CUTS:
            entering = [partial(grouped, x, first, None, *t, share=8, activation="silu", cut=cut) for t in told]
            leaving = [partial(grouped, bent, down, None, *t, puts=True, cut=cut) for t in told]
            for name, launches, size in (("gate_up", entering, first), ("down", leaving, down)):
                try:
                    spent = microseconds(launches)
                except Exception as error:  # a cut that does not fit
                    print(f"{name} {n} {tuple(cut)}: {type(error).__name__}", flush=True)
                    continue
                least = 1e6 * mean * 2 * size[0].numel() / rate
                found[f"{name} {n} {tuple(cut)}"] = (spent, spent / least)
                print(f"{name} n={n} {tuple(cut)}: {spent:.1f} μs, {spent / least:.2f}×", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=THIRTY.layers)
    parser.add_argument("--dense-layers", type=int, default=EIGHT.layers)
    parser.add_argument("--rows", default="1,32")
    parser.add_argument("--only", default="experts,bits", metavar="PARTS")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    torch.manual_seed(0)
    rate, wanted = bandwidth(), args.only.split(",")
    found: dict[str, Any] = {"bytes_per_second": rate, "layers": args.layers}
    print(f"copy bandwidth {rate / 1e12:.2f} TB/s", flush=True)
    if "products" in wanted:
        found["products"] = products(rate)
    if "bits" in wanted:
        found["bits"] = bits(rate, args.dense_layers)
    if "experts" in wanted:
        found["experts"] = experts(args.layers, [int(x) for x in args.rows.split(",")], rate)
    if args.json:
        save(args.json, found)


if __name__ == "__main__":
    main()
