"""What drafting over recurrent layers costs: checkpoints of every node, and a rollback to one of them.

    python bench/rollback.py [--device cpu] [--dtype fp32] [--nodes 8] [--graphs] [--prompt 2048] [--json FILE]

The model has the layers of Qwen3.5 (three gated delta nets to one attention) and random weights. A step reads one
token; a tree is a chain of drafts, of which half is kept, so that the next step goes on from a checkpoint. `writing` is
the time that goes into storing checkpoints within a forward, `rollback` what keeping a part of a draft takes, and
`nothing` what measuring does. `round` is a tree, what is kept of it, and the step behind it, under one clock: with half
of the draft kept, and, in turn, with all of it, where nothing is rolled back; `rollback in a round` is the difference
of their medians, which holds nothing of the measuring. Times are medians. With `--graphs` it runs on CUDA graphs with
fixed shapes: `turn` is a token of plain decoding that the host does not wait for, and `writing` the difference that
checkpoints make to the kernels of all layers, replayed as a graph.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from experts import Noise
from record import save

from unspool.core.chance import Philox
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, Tree
from unspool.core.warp import Temperature
from unspool.kernels.delta_net import delta_net
from unspool.kernels.kernel_rows import Rows
from unspool.models.layer_shape import LayerSpec
from unspool.models.mixer_shape import DeltaSpec
from unspool.models.shape import Shape
from unspool.recipes.methods import method
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.checkpoint_pool import CheckpointPool
from unspool.runtime.cuda.batch_invariant_fused import BatchInvariantFused
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.llama import Llama

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PROMPT, TURNS, ROUNDS = 256, 15, 40
PLAIN = Shape("qwen3_5_text", 8, 1024, 8, 2, 256, 3584, 32768, 4096, 1e-6, 1e7, rotary=64)
DELTA = DeltaSpec(key_heads=16, heads=16, key_dim=128, value_dim=128, size=4)


def hybrid() -> Shape:
    """Eight layers of the smallest of that family."""
    attention = replace(PLAIN.attention(), gated=True, qk_norm="head")
    each = (LayerSpec(attention if (i + 1) % 4 == 0 else DELTA, PLAIN.hidden) for i in range(PLAIN.layers))
    return replace(PLAIN, each=tuple(each))


@contextmanager
def timed(device: str, spent: list[float]) -> Iterator[None]:
    """Note how long it takes to store checkpoints."""
    write = CheckpointPool.write

    def noting(self: CheckpointPool, *given: torch.Tensor) -> None:
        wait(device)
        began = time.perf_counter()
        write(self, *given)
        wait(device)
        spent[-1] += time.perf_counter() - began

    CheckpointPool.write = noting
    yield
    CheckpointPool.write = write


def wait(device: str) -> None:
    """Let a GPU come to an end."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def kernel(nodes: int, writes: bool) -> float:
    """Milliseconds that the states of all delta nets take in a graph, over a chain of so many nodes."""
    whole, layers = {"dtype": torch.int32, "device": "cuda"}, len(hybrid().recurrent)
    wide = 2 * DELTA.keys + DELTA.values
    mixed, ba = (torch.randn(nodes, size, device="cuda", dtype=torch.bfloat16) for size in (wide, 2 * DELTA.heads))
    states = torch.zeros(layers, nodes + 1, DELTA.heads, DELTA.value_dim, DELTA.key_dim, device="cuda")
    decay, shift = torch.full((2, DELTA.heads), -1.0, device="cuda")
    one, own = torch.zeros(1, **whole), torch.arange(nodes, **whole)
    leaves = own + 1 if writes else torch.full_like(own, -1)
    before = own - 1  # the first goes on from state 0, which is ~0 = −1
    rows = Rows(one[:, None], one, one + nodes, own, own, before=before, into=leaves)

    def step() -> None:
        for layer in states:
            delta_net(mixed, ba, decay, shift, rows, layer, DELTA.key_heads)

    return replayed(step)


def replayed(step: Callable[[], object]) -> float:
    """Milliseconds of a step that is replayed as a graph, the median of many."""
    step()
    torch.cuda.synchronize()
    graph, times = torch.cuda.CUDAGraph(), list[float]()
    with torch.cuda.graph(graph):
        step()
    for _ in range(50):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def turned(model: CachedModel, most: int = 129) -> float:
    """Milliseconds of a token that plain decoding writes."""
    taken = list[float]()
    for seed in range(3):
        engine, began = Engine({"target": model}), time.perf_counter()
        prompt = tuple(i % 991 for i in range(PROMPT))
        engine.submit(method("plain"), prompt, Philox(seed), Temperature(0.0), Stop(most=most), laws=False)
        engine.run()
        taken.append((time.perf_counter() - began) * 1e3 / most)
        model.forget()
    return min(taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="fp32", choices=DTYPES)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--prompt", type=int, default=0, help="also time the reading of a prompt of so many tokens")
    parser.add_argument("--json")
    given = parser.parse_args()
    shape, dtype = hybrid(), DTYPES[given.dtype]
    room = 2048 + given.prompt
    if given.graphs:
        model = graph_model(BatchInvariantFused.load(Noise(shape, given.device), dtype, given.device, room), 0, 8)
    else:
        model = CachedModel(Llama.load(Noise(shape, given.device), dtype, given.device, room))
    session = model.open([i % 997 for i in range(PROMPT)])
    model.score([ScoreRequest(session, NOTHING)])
    draft, half = Tree.chain([chosen(i) for i in range(given.nodes)]), given.nodes // 2 - 1
    times: dict[str, list[float]] = {}

    def measured(what: str, act: Callable[[], object]) -> None:
        wait(given.device)
        began = time.perf_counter()
        act()
        wait(given.device)
        times.setdefault(what, []).append((time.perf_counter() - began) * 1e3)

    def turn() -> None:
        session.keep(NOTHING, (~0,), (5,))
        measured("step", lambda: model.score([ScoreRequest(session, NOTHING)]))
        session.keep(NOTHING, (~0,), (7,))
        measured("tree", lambda: model.score([ScoreRequest(session, draft)]))
        measured("nothing", lambda: None)
        measured("rollback", lambda: session.keep(draft, (half,), (3,)))
        measured("step after it", lambda: model.score([ScoreRequest(session, NOTHING)]))

    def round_(what: str, kept: int) -> None:
        def act() -> None:
            model.score([ScoreRequest(session, draft)])
            session.keep(draft, (kept,), (3,))
            model.score([ScoreRequest(session, NOTHING)])

        session.keep(NOTHING, (~0,), (7,))
        measured(what, act)

    for _ in range(TURNS):
        turn()
    for _ in range(ROUNDS if given.graphs else TURNS):
        round_("round", half)
        round_("round, all kept", given.nodes - 1)
    writing = {"step": [0.0], "tree": [0.0]}
    for what, tree in () if given.graphs else (("step", NOTHING), ("tree", draft)):
        for _ in range(TURNS):
            session.keep(NOTHING, (~0,), (5,))
            writing[what].append(0.0)
            with timed(given.device, writing[what]):
                model.score([ScoreRequest(session, tree)])
            session.keep(NOTHING, (~0,), (None,))
    found = {name: statistics.median(values[2:]) for name, values in times.items()}
    found["rollback in a round"] = found["round"] - found["round, all kept"]
    if given.prompt:
        for seed in range(4):
            text = model.open([(i * 7 + seed) % 997 for i in range(given.prompt)])
            measured("prompt", lambda text=text: model.score([ScoreRequest(text, NOTHING)]))
            text.close()
            model.forget()
        found["prompt"] = min(times["prompt"])
    if given.graphs:
        found["turn"] = turned(model)
        for what, count in (("step", 1), ("tree", given.nodes + 1)):
            found[f"kernels in a {what}"] = kernel(count, True)
            found[f"writing in a {what}"] = found[f"kernels in a {what}"] - kernel(count, False)
    else:
        found |= {f"writing in a {what}": statistics.median(spent[2:]) * 1e3 for what, spent in writing.items()}
    for name, value in found.items():
        print(f"{name:<18} {value:9.3f} ms  {value / found['step']:6.1%} of a step")
    size = shape.state_bytes(dtype)
    print(f"a checkpoint has {size / 1e6:.2f} MB, keys and values of a token {shape.kv_bytes(dtype) / 1e3:.1f} kB")
    if given.json:
        setting = {"device": given.device, "dtype": given.dtype, "nodes": given.nodes, "graphs": given.graphs}
        save(given.json, {**setting, "prompt": given.prompt, "ms": found, "state": size})


if __name__ == "__main__":
    main()
