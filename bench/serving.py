"""What serving needs of the GPU runtime: memory as planned, weights of few bits, and no long waits.

Part of bench/gpu.py, which runs all of it.
"""

from __future__ import annotations

import gc
import time
from typing import Any

import torch

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.memory_plan import plan
from unspool.api.settings import Settings
from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING
from unspool.core.warp import Temperature
from unspool.models.address import path
from unspool.models.weights import open_checkpoint
from unspool.recipes.methods import method
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.quantised import KINDS

Row = tuple[str, str, str]  # what, measured, bar
Text = tuple[int, ...]


def memory(name: str, rows: int = 32, context: int = 1024, tree: int = 31) -> tuple[dict[str, Any], list[Row]]:
    """The peak of what PyTorch holds, against the plan, for a batch of long prompts with full trees."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()
    planned = plan(open_checkpoint(path(name)), torch.bfloat16, context, rows, tree, "cuda")
    lm = load(name, dtype="bf16", device="cuda", kv_cache_tokens=rows * (context + tree + 1))
    texts = [tuple((7 * i + 13 * row) % 900 + 5 for i in range(700)) for row in range(rows)]
    for spec in (f"recycle:nodes={tree}", "plain"):
        lm.model.forget()
        engine = Engine(lm.models(), lm.price)
        for i, text in enumerate(texts):
            engine.submit(method(spec), text, Philox(i, 0), Temperature(0.0), Stop(most=120), laws=False)
        engine.run()
    peak = torch.cuda.max_memory_reserved() - before
    found = {"planned": planned.total, "peak": peak}
    said = f"{peak / 1e9:.2f} GB, {peak / planned.total:.2f}× the plan"
    return found, [(f"peak memory, {rows} × {context} tokens with trees of {tree}", said, "0.9–1.1×")]


def weights(name: str, texts: list[Text]) -> tuple[dict[str, Any], list[Row]]:
    """KL to whole weights after every prompt, and tokens per second alone."""
    found: dict[str, Any] = {}
    truth: list[torch.Tensor] = []
    for kind in KINDS:
        lm = load(name, dtype="bf16", device="cuda", quantization=kind)
        laws = []
        for text in texts:
            session = lm.model.open(text)
            laws.append(lm.model.score([ScoreRequest(session, NOTHING)])[0].leaf[0].scores.double().log_softmax(-1))
            session.close()
            lm.model.forget()
        truth = truth or laws
        off = [float((p.exp() * (p - q)).sum()) for p, q in zip(truth, laws, strict=True)]
        for _ in range(2):
            lm.model.forget()
            began = time.perf_counter()
            rate = len(lm.generate(texts[0], Settings(max_tokens=256)).tokens) / (time.perf_counter() - began)
        found[kind] = {"kl": sum(off) / len(off), "kl_worst": max(off), "tokens_per_second": rate}
    said = ", ".join(f"{kind} {one['kl']:.4f} nats, {one['tokens_per_second']:.0f}/s" for kind, one in found.items())
    return found, [("weights: KL to whole ones, tokens/s alone", said, "")]


def waits(lm: LM) -> tuple[dict[str, Any], list[Row]]:
    """The longest that eight who write wait while three prompts of 6,000 tokens join: in chunks, and at once."""
    found = {}
    usual = lm.model.chunk
    for name, chunk in (("chunks", usual), ("at once", 1 << 30)):
        for _ in range(2):  # the first one captures what is new
            lm.model.forget()
            lm.model.chunk = chunk
            found[name] = _longest_wait(lm)
    lm.model.chunk = usual
    said = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in found.items())
    return found, [("longest wait of a writer while 3 × 6,000 tokens are read", said, "")]


def _longest_wait(lm: LM) -> float:
    engine = Engine(lm.models(), lm.price)

    def submit(text: Text, seed: int, most: int) -> Any:
        warp, stop = Temperature(1.0), Stop(most=most)
        return engine.submit(method("plain"), text, Philox(seed, 0), warp, stop, laws=False, patience=0.005)

    writers = [submit((i + 5, 7, 9), i, 400) for i in range(8)]
    for _ in range(20):
        engine.step()
    for k in range(3):
        submit(tuple((13 * i + k) % 900 + 5 for i in range(6000)), 99 + k, 4)
    last, longest = time.perf_counter(), 0.0
    while engine.step():
        if any(job.emitted for job in writers):
            for job in writers:
                job.emitted.clear()
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    return longest
