"""A mixture of experts on a GPU: a look at a block, with experts in one stack and one after the other.

    python bench/experts.py [--layers 20] [--rows 1,8] [--json FILE]

The model has the shape of LLaDA2.0-mini and random weights, so that tokens spread over the experts as evenly as chance
does. `floor` is the time to read the weights that the look uses once, at the copy bandwidth of this run. Times are
medians of whole looks, everything in them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import torch
from record import save

from unspool.core.asks import Look
from unspool.core.canvas import Canvas
from unspool.models.layer_shape import ExpertSpec
from unspool.models.shape import DiffusionSpec, Shape
from unspool.runtime.diffusion.block_diffusion import BlockDiffusionModel
from unspool.runtime.engine.contracts import LookRequest
from unspool.runtime.network.experts import ExpertLoop, Experts, GroupedExperts
from unspool.runtime.network.linear import DenseLinear, GatedMLP
from unspool.runtime.network.llama import Llama

BLOCK, BEFORE = 32, 512
MIXTURE = ExpertSpec(256, 8, 512, shared=512, groups=8, open=4, scale=2.5, dense=1)
MINI = Shape("llada2_moe", 20, 2048, 16, 4, 128, 5120, 157184, 32768, 1e-6, 600000.0, qk_norm=True, rotary=64)


@dataclass(frozen=True)
class Noise:
    """A checkpoint with random weights of a shape."""

    shape: Shape
    device: str = "cuda"
    rope_factors = None

    @cached_property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, worked out once."""
        return self.shape.tensors()

    def tensor(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """Weights that keep the residual stream at its size."""
        size = self.sizes[name]
        if name.endswith("expert_bias"):
            return torch.zeros(size, dtype=dtype, device=self.device)
        if len(size) == 1:
            return torch.ones(size, dtype=dtype, device=self.device)
        return torch.randn(size, dtype=dtype, device=self.device) * 0.02


def seconds(run: Callable[[], object], repeats: int = 12) -> float:
    """The median time of a call."""
    times = []
    for _ in range(repeats + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[3:])


def rate() -> float:
    """Bytes per second of a large copy, read and written."""
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / seconds(lambda: b.copy_(a), 20)


def apart(network: Llama) -> Llama:
    """The same network with its experts one after the other; they are views of the stack."""
    stack = [replace(layer, mlp=_apart(layer.mlp)) for layer in network._stack]
    return Llama(network.shape, network._ends, stack, network._rotaries, network.slots.room)


def _apart(mlp: GatedMLP | Experts) -> GatedMLP | Experts:
    if not isinstance(mlp, Experts):
        return mlp
    crowd = mlp.crowd
    assert isinstance(crowd, GroupedExperts)
    pairs = zip(crowd.gate_up, crowd.down, strict=True)
    return replace(
        mlp, crowd=ExpertLoop([GatedMLP(DenseLinear(a, None), DenseLinear(b, None), crowd.gated) for a, b in pairs])
    )


def used(network: Llama, run: Callable[[], object]) -> int:
    """Bytes of the weights that a run uses: all but the experts that no token chose, and but the embedding."""
    shape, mixture = network.shape, network.shape.mixture
    assert mixture is not None
    chosen: list[int] = []
    route = Experts.route

    def noted(self: Experts, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = route(self, x)
        chosen.append(len(found[0].unique()))
        return found

    Experts.route = noted  # type: ignore[method-assign]
    run()
    Experts.route = route  # type: ignore[method-assign]
    one = 3 * mixture.hidden * shape.dim
    sizes = shape.tensors()
    rest = sum(prod(size) for name, size in sizes.items() if ".mlp.experts." not in name and "embed" not in name)
    return 2 * (rest + one * sum(chosen))


def measured(stacked: Llama, rows: int, bandwidth: float) -> dict[str, Any]:
    """One number of canvases at a time: a look at a block each, behind a text that is in the cache."""
    found: dict[str, Any] = {"rows": rows}
    texts = [[(r * 31 + i * 7) % 1000 + 3 for i in range(BEFORE)] for r in range(rows)]
    scores = {}
    for kind, network in (("stacked", stacked), ("each", apart(stacked))):
        assert network.shape.filling is not None
        model = BlockDiffusionModel(network, network.shape.filling)
        known = {BEFORE + i: i * 29 + 7 for i in range(1, BLOCK)}  # many different tokens choose many experts
        looks = [LookRequest(model.open(text), Look(Canvas.blank(text, BLOCK).fill(known))) for text in texts]
        run = lambda model=model, looks=looks: model.look(looks)  # noqa: E731
        scores[kind] = run()[0].scores
        found[f"{kind}_ms"] = 1e3 * seconds(run)
        if kind == "stacked":
            found["floor_ms"] = 1e3 * used(network, run) / bandwidth
    found["apart"] = float((scores["stacked"] - scores["each"]).nan_to_num().abs().max())
    found["times_floor"] = found["stacked_ms"] / found["floor_ms"]
    found["times_each"] = found["each_ms"] / found["stacked_ms"]
    return found


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=MINI.layers)
    parser.add_argument("--rows", default="1,8")
    parser.add_argument("--json", metavar="FILE")
    told = parser.parse_args()
    torch.manual_seed(0)
    filling = DiffusionSpec("blocks", "aligned", 156895, block=BLOCK)
    shape = replace(MINI, layers=told.layers, windows=(None,) * told.layers, mixture=MIXTURE, filling=filling)
    network = Llama.load(Noise(shape), torch.bfloat16, "cuda", 16384)  # type: ignore[arg-type]
    bandwidth = rate()
    result = {"layers": shape.layers, "parameters": shape.parameters, "copy_tb_s": bandwidth / 1e12}
    result["looks"] = [measured(network, int(rows), bandwidth) for rows in told.rows.split(",")]
    print(result)
    if told.json:
        save(told.json, result)


if __name__ == "__main__":
    main()
