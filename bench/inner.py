"""Drafters that belong to the model, on a GPU: its heads, and an early exit. Do texts stay, and what do they cost?

    python bench/inner.py [--model smollm2] [--heads FILE] [--data FOLDER] [--limit 1] [--tokens 128] [--json FILE]

bench/gpu.py runs it on a few prompts. With fixed shapes every greedy text must be plain decoding's, token for token;
with free ones tokens per forward and speed over plain are measured, after everything was captured.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from record import save
from spec import DATA, chats

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda.cuda_graph_executor import CudaGraphExecutor
from unspool.runtime.cuda.packing import Kind

Row = tuple[str, str, str]  # what, measured, bar
Text = tuple[int, ...]
EXIT, CHAIN = "layers:27", "chain:depth=3"
WIDTHS = (3, 7, 15, 31)


def inner(name: str, texts: list[Text], most: int = 128, heads: str | None = None) -> tuple[dict[str, Any], list[Row]]:
    """What heads and an early exit bring, and whether texts by them are plain decoding's with fixed shapes."""
    found: dict[str, Any] = {"same": {}, "free": {}}
    specs = (*(f"heads:nodes={nodes}" for nodes in WIDTHS), CHAIN)
    for fixed in (True, False):
        lm = load(name, dtype="bf16", device="cuda", batch_invariant=fixed, draft=EXIT, heads=heads)
        plain = measured(lm, texts, "plain", most)
        for spec in specs:
            told = measured(lm, texts, spec, most)
            if fixed:
                found["same"][spec] = sum(a == b for a, b in zip(told["texts"], plain["texts"], strict=True))
            else:
                told["speed"] = told.pop("tokens_per_second") / plain["tokens_per_second"]
                found["free"][spec] = {key: value for key, value in told.items() if key != "texts"}
    found["graphs"] = {"exit": graphs(lm.draft.model if lm.draft else None), "target": graphs(lm.model)}
    best = max(specs[:-1], key=lambda spec: found["free"][spec]["speed"])
    same = f"{sum(found['same'].values())} of {len(texts) * len(specs)}"
    rows = [
        ("heads and early exit, fixed shapes: texts equal to plain decoding's", same, "all"),
        (f"heads ({best})", _said(found["free"][best]), ""),
        (f"early exit ({EXIT}, {CHAIN}, drawn as one graph)", _said(found["free"][CHAIN]), ""),
    ]
    return found, rows


def _said(told: dict[str, float]) -> str:
    return f"{told['tokens_per_forward']:.2f} tokens per forward, {told['speed']:.2f}× plain"


def measured(lm: LM, texts: list[Text], spec: str, most: int) -> dict[str, Any]:
    """Greedy texts one after the other from an empty cache; graphs are made before."""
    for _ in range(2):
        spent, forwards, written = 0.0, 0, []
        for text in texts:
            lm.model.forget()
            if lm.draft is not None:
                lm.draft.model.forget()
            began = time.perf_counter()
            output = lm.generate(text, Settings(max_tokens=most), spec)
            spent += time.perf_counter() - began
            forwards += output.trace.forwards["target"]
            written.append(output.tokens)
    count = sum(map(len, written))
    return {"texts": written, "tokens_per_second": count / spent, "tokens_per_forward": count / forwards}


def graphs(model: object) -> dict[str, int]:
    """How many graphs a model has captured, by kind; those with hidden states, which heads read, apart."""
    assert isinstance(model, CachedModel)
    assert isinstance(model.executor, CudaGraphExecutor)
    counted: dict[str, int] = {}
    for size, bucket in model.executor.buckets.items():
        for want, _ in bucket.graphs:
            kind = "with heads" if want and model.heads is not None else size.kind.name.lower()
            counted[kind] = counted.get(kind, 0) + 1
    assert Kind.DRAW.name.lower() in counted or "with heads" in counted
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--heads", metavar="FILE", help="other heads than those that come with the model")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--limit", type=int, default=1, help="prompts per family")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    texts = chats(load(args.model, device="cpu"), args.data, args.limit)
    found, rows = inner(args.model, texts, args.tokens, args.heads)
    for row in rows:
        print(" | ".join(row))
    for spec, told in found["free"].items():
        print(f"{spec:16}", _said(told), f"same with fixed shapes: {found['same'][spec]} of {len(texts)}")
    print(found["graphs"])
    if args.json:
        save(args.json, {"model": args.model, "tokens": args.tokens, **found})


if __name__ == "__main__":
    main()
