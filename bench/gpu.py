"""The GPU runtime: first whether it is right, then how fast it is, all in one run on one GPU.

    python bench/gpu.py [--model smollm2] [--data FOLDER] [--only right,step,...] [--json FILE]

Step times are medians of graph replays between CUDA events; all else is wall time with everything in it. The 8B model
has the shape of Llama-3-8B and random weights. `floor` is the time to read the weights and keys once at the copy
bandwidth of this run. With --json, a Markdown table is written beside it. --data holds Spec-Bench's question.jsonl.
What people really send (every setting at 1, 32 and 128 texts, schemas, a mixed batch), what fixed shapes cost and the
first token of a long prompt are `--only fixed,warped,first,eight`: two or three minutes with compiled kernels.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crowd
import drawn
import first
import inner
import serving
import steady
import torch
import warped
from record import save
from spec import DATA, chats, questions

from unspool.api.diverge import divergence, passes_of
from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.models.address import path
from unspool.models.shape import Shape
from unspool.models.weights import open_checkpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda.batch_invariant_fused import BatchInvariantFused
from unspool.runtime.cuda.cuda_graph_executor import CudaGraphExecutor
from unspool.runtime.cuda.fused import Fused
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.cuda.packing import Kind
from unspool.runtime.cuda.warp_stage import BARE
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.linear import DenseLinear
from unspool.runtime.network.llama import Llama

EIGHT = Shape("llama", 32, 4096, 32, 8, 128, 14336, 128256, 8192, 1e-5, 500000.0)
METHODS = ("lookup", "suffix", "recycle", "bigram_recycling", "merge", "on_device", "auto")
CONTEXT = 1000
Row = tuple[str, str, str]  # what, measured, bar


@dataclass
class Noise:
    """A checkpoint with random weights of a shape."""

    shape: Shape
    rope_factors = None

    def tensor(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        size = self.shape.tensors()[name]
        return torch.ones(size, dtype=dtype) if len(size) == 1 else torch.randn(size, dtype=dtype, device="cuda") * 0.02


def milliseconds(run: Callable[[], object], repeats: int = 40) -> float:
    """The median time of a call between events."""
    times = []
    for _ in range(repeats + 5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[5:])


def bandwidth() -> float:
    """Bytes per second of a large copy, read and written."""
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / (milliseconds(lambda: b.copy_(a), 20) / 1e3)


def step(model: CachedModel, context: int, rows: int, width: int) -> float:
    """Milliseconds of a forward over `rows` texts of `context` tokens, each with a tree of `width` − 1 nodes."""
    nodes = Tree(tuple(Drawn(i, Law.point(i)) for i in range(width - 1)), tuple(i // 2 - 1 for i in range(width - 1)))
    sessions = [model.open([(r + i * 7) % 1000 + 3 for i in range(context)]) for r in range(rows)]
    for session in sessions:
        model.score([ScoreRequest(session, NOTHING)])
        session.keep(NOTHING, (ROOT,), (5,))
    model.score([ScoreRequest(session, nodes) for session in sessions])
    assert isinstance(model.executor, CudaGraphExecutor)
    graph = model.executor.serving(Kind.TREE, rows, width, context + width)[0].graphs[(), False, BARE].graphs[0]
    spent = milliseconds(graph.replay)
    for session in sessions:
        session.close()
    model.forget()
    return spent


def floor(shape: Shape, context: int, rate: float) -> float:
    """Milliseconds to read all weights and the keys and values of a text once."""
    weights = sum(torch.Size(size).numel() for size in shape.tensors().values())
    return 2e3 * (weights + context * shape.layers * shape.kv_heads * shape.head_dim * 2) / rate


def right(lm: LM, name: str, texts: list[tuple[int, ...]]) -> tuple[dict[str, Any], list[Row]]:
    """The laws of the network without kernels, and the greedy text of plain decoding by every method."""
    rough, exact = (
        CachedModel(Llama.load(open_checkpoint(path(name)), d, "cuda", 8192))
        for d in (lm.model.network.dtype, torch.float32)
    )
    off = {"kernels": 0.0, "torch": 0.0}
    for text in texts:
        ours, other, truth = (read(model, text) for model in (lm.model, rough, exact))
        off["kernels"] = max(off["kernels"], float((ours - truth).abs().max()))
        off["torch"] = max(off["torch"], float((other - truth).abs().max()))
    verdicts: dict[str, int] = {}
    for text in texts:
        plain = written(lm, text, "plain", 96).tokens
        for spec in METHODS:
            parted = divergence(text, written(lm, text, spec, 96).tokens, plain, passes_of(lm.model))
            verdict = "same" if parted is None else "near tie" if parted.near_tie else "BUG"
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
    lm.model.forget()
    found = {"logits_off": off, "texts": verdicts, "slots_left": lm.model.slots.in_use}
    errors = f"{off['kernels']:.2f} ({off['torch']:.2f})"
    texts_said = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
    return found, [
        ("largest error of a logit in bf16 (PyTorch's own)", errors, ""),
        ("greedy texts of seven methods against plain", texts_said, "no BUG"),
    ]


def read(model: CachedModel, text: tuple[int, ...]) -> torch.Tensor:
    session = model.open(text)
    scores = model.score([ScoreRequest(session, NOTHING)])[0].leaf[0].scores.float()
    session.close()
    model.forget()
    return scores


def written(lm: LM, text: tuple[int, ...], spec: str, most: int) -> Any:
    lm.model.forget()
    return lm.generate(text, Settings(max_tokens=most), spec)


def steps(lm: LM, rate: float) -> tuple[dict[str, Any], list[Row]]:
    shape = lm.model.network.shape
    short = ((1, 1), (1, 8), (1, 16), (1, 64), (8, 1), (32, 1), (128, 1))
    cases = (*((r, w, CONTEXT) for r, w in short), (1, 1, 8000), (32, 1, 8000), (128, 1, 8000))
    found = {f"{r}x{w} @ {c}": step(lm.model, c, r, w) for r, w, c in cases}
    least, long = floor(shape, 8000, rate), found["1x1 @ 8000"]
    least_many, many = floor(shape, 128 * 8000, rate), found["128x1 @ 8000"]
    rows = [
        ("SmolLM2 plain step", f"{found[f'1x1 @ {CONTEXT}']:.3f} ms", "≤ 0.75 ms"),
        ("SmolLM2, verify 64 nodes", f"{found[f'1x64 @ {CONTEXT}']:.3f} ms", "≤ 1.05 ms"),
        ("SmolLM2 plain step, 8k context", f"{long:.3f} ms, {long / least:.1f}× its bytes", "≤ 1.3×"),
        ("SmolLM2 plain step, 128 × 8k context", f"{many:.3f} ms, {many / least_many:.2f}× its bytes", "≤ 1.3×"),
    ]
    return {**found, "floor_8k": least, "floor_128x8k": least_many}, rows


def eight(rate: float) -> tuple[dict[str, Any], list[Row]]:
    model = graph_model(Fused.load(Noise(EIGHT), torch.bfloat16, "cuda", 40_000, DenseLinear), sequences=64)
    cases = ((1, 1, CONTEXT), (1, 8, CONTEXT), (1, 64, CONTEXT), (8, 1, CONTEXT), (1, 1, 8000))
    found = {f"{r}x{w} @ {c}": step(model, c, r, w) for r, w, c in cases}
    one, tree, long = (found[key] for key in (f"1x1 @ {CONTEXT}", f"1x64 @ {CONTEXT}", "1x1 @ 8000"))
    least, least_long = floor(EIGHT, CONTEXT, rate), floor(EIGHT, 8000, rate)
    rows = [
        ("8B plain step", f"{one:.2f} ms, {one / least:.2f}× its bytes", "≤ 4.4 ms"),
        ("8B, verify 64 nodes", f"{tree:.2f} ms, {tree / one:.2f}× plain", "≤ 1.25×"),
        ("8B plain step, 8k context", f"{long:.2f} ms, {long / least_long:.2f}× its bytes", "≤ 1.3×"),
    ]
    invariant = graph_model(BatchInvariantFused.load(Noise(EIGHT), torch.bfloat16, "cuda", 40_000), sequences=64)
    for texts in (1, 32):
        free, fixed = (step(each, CONTEXT, texts, 1) for each in (model, invariant))
        found |= {f"free, {texts} texts": free, f"fixed, {texts} texts": fixed}
        named = f"8B plain step, fixed shapes, {texts} text{'s' * (texts > 1)}"
        rows.append((named, f"{fixed:.2f} ms, {free / fixed:.2f}× the speed of free shapes", "≥ 0.97×"))
    return {**found, "floor": least, "floor_8k": least_long}, rows


def families(lm: LM, data: Path, limit: int, most: int) -> tuple[dict[str, Any], list[Row]]:
    """Every method on prompts of Spec-Bench's families, alone: speed over plain, tokens per forward, host time."""
    found: dict[str, Any] = {}
    for spec in ("plain", *METHODS):
        per: dict[str, Any] = {}
        for family, texts in questions(data, 0, limit).items():
            prompts = [lm.encode([{"role": "user", "content": text}]) for text in texts]
            for _ in range(2):  # the first one captures what is new
                traces, began = [], time.perf_counter()
                for prompt in prompts:
                    traces.append(written(lm, prompt, spec, most).trace)
                wall = time.perf_counter() - began
            total = sum(traces[1:], traces[0])
            per[family] = {
                "tokens_per_second": total.tokens / wall,
                "tokens_per_forward": total.tokens_per_forward,
                "host_ms_per_round": 1e3 * (wall - total.seconds_forward) / total.rounds,
            }
        found[spec] = per
    gains = {
        spec: statistics.mean(per[f]["tokens_per_second"] / found["plain"][f]["tokens_per_second"] for f in per)
        for spec, per in found.items()
    }
    best = max(gains, key=lambda spec: gains[spec])
    worst = min(found["auto"][f]["tokens_per_second"] / found["plain"][f]["tokens_per_second"] for f in found["auto"])
    hosts = {spec: statistics.mean(x["host_ms_per_round"] for x in per.values()) for spec, per in found.items()}
    rows = [
        ("best model-free method over plain, mean over families", f"{gains[best]:.2f}× ({best})", "≥ 1.8×"),
        ("auto over plain, batch 1, worst family", f"{worst:.2f}×", "≥ 0.97×"),
        ("host time per round", ", ".join(f"{k} {v:.2f}" for k, v in hosts.items()) + " ms", "≤ 0.25 ms"),
    ]
    return {"methods": found, "gains": gains, "host": hosts}, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--limit", type=int, default=2, help="prompts per family")
    parser.add_argument(
        "--only",
        default="memory,right,fixed,step,weights,families,batches,warped,first,waits,drawn,inner,turmoil,eight",
        metavar="PARTS",
    )
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    rate, wanted = bandwidth(), args.only.split(",")
    found: dict[str, Any] = {"bytes_per_second": rate}
    table: list[Row] = [("copy bandwidth", f"{rate / 1e12:.2f} TB/s", "")]
    if "memory" in wanted:  # while nothing else is loaded
        found["memory"], rows = serving.memory(args.model)
        table += rows
    lm = load(args.model, dtype="bf16", device="cuda", kv_cache_tokens=3_200_000)
    assert isinstance(lm.model, CachedModel)
    assert isinstance(lm.model.executor, CudaGraphExecutor)
    gc.collect()
    gc.freeze()  # what is loaded stays; a collector that looks at it again and again takes a quarter of a batch's time
    texts = chats(lm, args.data, 1)
    jobs: dict[str, Callable[[], tuple[dict[str, Any], list[Row]]]] = {
        "right": lambda: right(lm, args.model, texts),
        "fixed": lambda: steady.steady(args.model, texts[:6]),
        "step": lambda: steps(lm, rate),
        "weights": lambda: serving.weights(args.model, texts),
        "families": lambda: families(lm, args.data, args.limit, 256),
        "batches": lambda: crowd.batches(lm, args.model),
        "warped": lambda: warped.warped(lm, texts),
        "first": lambda: first.first(lm, texts, load(args.model, dtype="bf16", device="cuda", batch_invariant=False)),
        "waits": lambda: serving.waits(lm),
        "drawn": lambda: drawn.drawn(args.model, texts),
        "inner": lambda: inner.inner(args.model, texts[:6]),
        "turmoil": lambda: crowd.turmoil(lm),
        "eight": lambda: eight(rate),
    }
    for name, job in jobs.items():
        if name in wanted:
            began = time.perf_counter()
            found[name], rows = job()
            table += rows
            print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
            if args.json:
                save(args.json, found)
    lines = ["| | measured | bar |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in table)]
    print("\n".join(lines))
    if args.json:
        Path(args.json).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
