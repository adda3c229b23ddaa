"""What drafting over recurrent layers costs: checkpoints of every node, and a rollback to one of them.

    python bench/rollback.py [--device cpu] [--dtype fp32] [--nodes 8] [--json FILE]

The model has the layers of Qwen3.5 (three gated delta nets to one attention) and random weights. A step reads one
token; a tree is a chain of drafts, of which half is kept, so that the next step goes on from a checkpoint. `writing` is
the time that goes into storing checkpoints within a forward, `rollback` what keeping a part of a draft takes. Times
are medians.
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

from unspool.core.law import chosen
from unspool.core.tree import NOTHING, Tree
from unspool.models.layer_shape import LayerSpec
from unspool.models.mixer_shape import DeltaSpec
from unspool.models.shape import Shape
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.checkpoint_pool import CheckpointPool
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.llama import Llama

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PROMPT, TURNS = 256, 15
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="fp32", choices=DTYPES)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--json")
    given = parser.parse_args()
    shape, dtype = hybrid(), DTYPES[given.dtype]
    model = CachedModel(Llama.load(Noise(shape, given.device), dtype, given.device, room=2048))
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

    def turn(suffix: str = "") -> None:
        session.keep(NOTHING, (~0,), (5,))
        measured(f"step{suffix}", lambda: model.score([ScoreRequest(session, NOTHING)]))
        session.keep(NOTHING, (~0,), (7,))
        measured(f"tree{suffix}", lambda: model.score([ScoreRequest(session, draft)]))
        measured(f"rollback{suffix}", lambda: session.keep(draft, (half,), (3,)))
        measured(f"step after it{suffix}", lambda: model.score([ScoreRequest(session, NOTHING)]))

    for _ in range(TURNS):
        turn()
    writing = {"step": [0.0], "tree": [0.0]}
    for what, tree in (("step", NOTHING), ("tree", draft)):
        for _ in range(TURNS):
            session.keep(NOTHING, (~0,), (5,))
            writing[what].append(0.0)
            with timed(given.device, writing[what]):
                model.score([ScoreRequest(session, tree)])
            session.keep(NOTHING, (~0,), (None,))
    found = {name: statistics.median(values[2:]) for name, values in times.items()}
    found |= {f"writing in a {what}": statistics.median(spent[2:]) * 1e3 for what, spent in writing.items()}
    for name, value in found.items():
        print(f"{name:<18} {value:9.3f} ms  {value / found['step']:6.1%} of a step")
    size = shape.state_bytes(dtype)
    print(f"a checkpoint has {size / 1e6:.2f} MB, keys and values of a token {shape.kv_bytes(dtype) / 1e3:.1f} kB")
    if given.json:
        save(
            given.json, {"device": given.device, "dtype": given.dtype, "nodes": given.nodes, "ms": found, "state": size}
        )


if __name__ == "__main__":
    main()
