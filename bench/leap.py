"""A trained drafter inside the graph, on a GPU: what a round takes by depth, what it brings, and whether texts stay.

    python bench/leap.py [--draft FOLDER] [--depths 2,3,4,5,6,7] [--nodes 15] [--branches 4] [--rows 1] [--json FILE]

Without --draft one is made with random weights of EAGLE-3's shape: its guesses are worthless, its steps cost the same.
Milliseconds of a round are medians of graph replays between CUDA events; what the drafter takes of it is the difference
to a round without one. Speed over plain is wall time of whole texts with everything in it, the way of drafting fixed;
`on_device` itself chooses by the clock. All of it with free shapes and batch-invariant, where texts must be plain
decoding's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from record import save
from safetensors.torch import save_file
from spec import DATA, chats

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.models.shape import Shape
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.sequence import CachedSequence
from unspool.runtime.cuda import graph_drafter
from unspool.runtime.cuda.cuda_graph_executor import CudaGraphExecutor
from unspool.runtime.cuda.device_decoding import DeviceDecoding
from unspool.runtime.cuda.device_speculation import DeviceSpeculation
from unspool.runtime.cuda.graph_bucket import Bucket
from unspool.runtime.cuda.packing import Kind
from unspool.runtime.cuda.speculation_gate import RECALL, Drafting, SpeculationGate, Way
from unspool.runtime.network.llama import Llama

Text = tuple[int, ...]
DRAFTED = 16384  # tokens that a made drafter guesses
REPLAYS = 60
FREE, FIXED = "free", "batch-invariant"


class Fixed(SpeculationGate):
    """Always drafts in one way, as widely as it may."""

    def __init__(self, way: Way) -> None:
        super().__init__()
        self.way = way

    def pays(self, leaves: Sequence[CachedSequence], choices: Sequence[Drafting] = (RECALL,)) -> Drafting | None:
        return [each for each in choices if each.way is self.way][-1]

    def sure(self, leaves: Sequence[CachedSequence], chosen: Drafting = RECALL) -> bool:
        return True


@dataclass
class Told:
    """What came of some texts."""

    texts: list[Text] = field(default_factory=list)
    seconds: float = 0.0
    forwards: int = 0

    @property
    def tokens(self) -> int:
        return sum(map(len, self.texts))

    @property
    def per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def per_forward(self) -> float:
        return self.tokens / self.forwards


def made(shape: Shape, folder: Path) -> Path:
    """A drafter of EAGLE-3's shape for a target, with random weights."""
    dim, inner = shape.dim, shape.heads * shape.head_dim
    keys = shape.kv_heads * shape.head_dim
    at = "midlayer."
    sizes = {
        "fc.weight": (dim, 3 * dim),
        f"{at}self_attn.q_proj.weight": (inner, 2 * dim),
        f"{at}self_attn.k_proj.weight": (keys, 2 * dim),
        f"{at}self_attn.v_proj.weight": (keys, 2 * dim),
        f"{at}self_attn.o_proj.weight": (dim, inner),
        f"{at}mlp.gate_proj.weight": (shape.hidden, dim),
        f"{at}mlp.up_proj.weight": (shape.hidden, dim),
        f"{at}mlp.down_proj.weight": (dim, shape.hidden),
        "lm_head.weight": (min(DRAFTED, shape.vocab), dim),
    }
    dice = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(size, generator=dice) * size[1] ** -0.5 for name, size in sizes.items()}
    norms = ("norm", f"{at}hidden_norm", f"{at}input_layernorm", f"{at}post_attention_layernorm")
    tensors |= {f"{name}.weight": torch.ones(dim) for name in norms}
    ids = torch.arange(min(DRAFTED, shape.vocab))
    mask = torch.zeros(shape.vocab, dtype=torch.bool)
    mask[ids] = True
    tensors |= {"d2t": torch.zeros_like(ids), "t2d": mask}
    told = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": dim,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "draft_vocab_size": len(ids),
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
    }
    (folder / "config.json").write_text(json.dumps(told), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder


def speculation(lm: LM) -> DeviceSpeculation:
    """What drafts on the device of a model."""
    assert isinstance(lm.model, CachedModel)
    assert isinstance(lm.model.device, DeviceDecoding)
    assert lm.model.device.speculation is not None
    return lm.model.device.speculation


def buckets(lm: LM) -> dict[Any, Bucket]:
    """The graphs of a model."""
    assert isinstance(lm.model, CachedModel)
    assert isinstance(lm.model.executor, CudaGraphExecutor)
    return lm.model.executor.buckets


def written(lm: LM, texts: list[Text], method: str, most: int, temperature: float, rows: int) -> Told:
    """Texts in batches of so many from an empty cache; graphs are made before."""
    settings = Settings(max_tokens=most, temperature=temperature, seed=1)
    for _ in range(2):
        told = Told()
        for first in range(0, len(texts), rows):
            lm.model.forget()
            some = texts[first : first + rows]
            torch.cuda.synchronize()
            began = time.perf_counter()
            outputs = lm.batch(some, settings, method)
            told.seconds += time.perf_counter() - began
            told.texts += [output.tokens for output in outputs]
            told.forwards += sum(output.trace.forwards["target"] for output in outputs)
    return told


def replayed(bucket: Bucket) -> float:
    """Milliseconds of one replay of a graph, from the same begin each time."""
    ((graphs, *_),) = bucket.graphs.values()
    times = []
    for _ in range(REPLAYS):
        bucket.staging.send()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for graph in graphs:
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def step_times(lm: LM) -> dict[str, float]:
    """Milliseconds of a step by kind and depth, of the graphs that are there; of several the one for shortest texts."""
    found: dict[str, float] = {}
    for size, bucket in sorted(buckets(lm).items(), key=lambda item: -item[0].length):
        if size.kind in (Kind.WRITE, Kind.SPECULATE) and len(bucket.graphs) == 1:
            found[f"{size.kind.name.lower()} {size.rows}x{size.tokens} depth {size.depth}"] = replayed(bucket)
    return found


def by_kernel(bucket: Bucket) -> list[str]:
    """Where the time of a step goes, by kernel."""
    ((graphs, *_),) = bucket.graphs.values()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(10):
            bucket.staging.send()
            for graph in graphs:
                graph.replay()
        torch.cuda.synchronize()
    rows = sorted(seen.key_averages(), key=lambda row: -row.device_time_total)
    return [f"{row.device_time_total / 10:9.1f} us {row.count / 10:6.1f} x  {row.key[:90]}" for row in rows[:30]]


def profile(lm: LM, kind: Kind) -> list[str]:
    """Where the time of a step goes, by kernel: of this kind the deepest that was captured, of fewest tokens."""
    sizes = [size for size in buckets(lm) if size.kind is kind]
    if not sizes:
        return []
    size = max(sizes, key=lambda size: (size.depth, -size.tokens, -size.rows))
    lines = by_kernel(buckets(lm)[size])
    return [f"kernels of a {kind.name.lower()} step, {size.rows}x{size.tokens}, depth {size.depth}:", *lines]


def ways(lm: LM, args: argparse.Namespace, texts: list[Text]) -> dict[str, Any]:
    """What every number of nodes and every depth brings over plain decoding, and what `on_device` makes of them."""
    found: dict[str, Any] = {}
    drafting, own = speculation(lm), speculation(lm).gate
    shapes = [(count, 0, args.branches[0]) for count in args.nodes]
    shapes += [(count, depth, kids) for kids in args.branches for count in args.nodes for depth in args.depths]

    def tell(name: str, told: Told, plain: Told) -> None:
        same, speed = (
            sum(a == b for a, b in zip(told.texts, plain.texts, strict=True)),
            told.per_second / plain.per_second,
        )
        wall = 1000 * told.seconds / told.forwards * args.rows
        found[name] = {"tokens_per_forward": told.per_forward, "wall_ms_per_round": wall, "speed": speed, "same": same}
        print(f"{name}: {told.per_forward:.2f} tokens a forward, {speed:.2f}x plain, same {same}", flush=True)

    for heat in args.temperatures:
        plain = written(lm, texts, "plain", args.tokens, heat, args.rows)
        print(f"T {heat}: plain {1000 / plain.per_second:.3f} ms a token by the wall", flush=True)
        for count, depth, kids in shapes:
            if kids != graph_drafter.BRANCHES:
                graph_drafter.BRANCHES = kids
                for size in [size for size in buckets(lm) if size.depth]:
                    del buckets(lm)[size]
            drafting.depth, drafting.few = depth or args.depths[0], count + 1
            drafting.gate = Fixed(Way.CHAIN if depth else Way.RECALL)
            told = written(lm, texts, f"on_device:nodes={count}", args.tokens, heat, args.rows)
            tell(f"T {heat} nodes {count} depth {depth} branches {kids if depth else 0}", told, plain)
        drafting.gate, drafting.depth = own, args.depths[len(args.depths) // 2]
        told = written(lm, texts, f"on_device:nodes={args.nodes[0]}", args.tokens, heat, args.rows)
        tell(f"T {heat} by the clock", told, plain)
    return found


def leap(args: argparse.Namespace, texts: list[Text], folder: Path) -> dict[str, Any]:
    """All figures, with free shapes and with fixed ones."""
    found: dict[str, Any] = {}
    for mode in args.modes:
        lm = load(args.model, dtype="bf16", device="cuda", batch_invariant=mode == FIXED, draft=str(folder))
        if speculation(lm).drafter is None:
            raise SystemExit("this drafter cannot draft in a graph")
        print(f"-- {mode}", flush=True)
        found[mode] = {"prompts": len(texts), "ways": ways(lm, args, texts), "steps_ms": step_times(lm)}
        for name, milliseconds in found[mode]["steps_ms"].items():
            print(f"{name}: {milliseconds:.4f} ms", flush=True)
        for kind in (Kind.WRITE, Kind.SPECULATE):
            print("\n".join(profile(lm, kind)), flush=True)
        del lm
    return found


def numbers(given: str) -> list[int]:
    """1,2,3"""
    return [int(part) for part in given.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--draft", type=Path, metavar="FOLDER", help="a trained drafter; else one of random weights")
    parser.add_argument("--depths", type=numbers, default=[2, 3, 4, 5, 6, 7])
    parser.add_argument("--nodes", type=numbers, default=[15])
    parser.add_argument("--branches", type=numbers, default=[graph_drafter.BRANCHES], help="nodes of a level")
    parser.add_argument("--modes", nargs="+", choices=(FREE, FIXED), default=[FREE, FIXED], help="of shapes")
    parser.add_argument("--rows", type=int, default=1, help="texts at a time")
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--limit", type=int, default=1, help="prompts per family")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    host = load(args.model, device="cpu")
    texts = chats(host, args.data, args.limit)
    assert isinstance(host.model, CachedModel)
    assert isinstance(host.model.network, Llama)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.draft or made(host.model.network.shape, Path(temporary))
        found = leap(args, texts, folder)
    if args.json:
        save(args.json, {"model": args.model, "tokens": args.tokens, "rows": args.rows, **found})


if __name__ == "__main__":
    main()
