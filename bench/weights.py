"""Weights of few bits: how far their laws are from those of whole ones, what they take, and how fast they are here.

    python bench/weights.py [--model smollm2] [--dtype fp32] [--device cpu] [--tokens 32] [--json FILE]

The model with whole weights writes greedy answers; every law along them is then compared: KL(whole ‖ rounded) in nats,
how often both prefer the same token, and the bytes and the time of a plain step of each.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from record import save

from unspool.api.lm import LM
from unspool.api.loader import dtype_of, load
from unspool.api.memory_plan import weight_bytes
from unspool.api.settings import Settings
from unspool.core.law import Law, chosen
from unspool.core.tree import Tree
from unspool.models.address import path
from unspool.models.weights import open_checkpoint
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.quantised import KINDS

PROMPTS = (
    "Why is the sky blue?",
    "Write a Python function that reverses a linked list.",
    "Translate to French: Where is the nearest train station?",
    "A shop sells pens at 3 for 2 euros. How much do 12 pens cost? Think step by step.",
    "Summarise in one sentence: The committee met on Tuesday, discussed the budget, and adjourned without a decision.",
    "Continue the story: The lighthouse keeper opened the door and saw",
)


def laws(lm: LM, prompt: tuple[int, ...], answer: tuple[int, ...]) -> list[Law]:
    """The law at every place of an answer."""
    session = lm.model.open(prompt)
    (scores,) = lm.model.score([ScoreRequest(session, Tree.chain([chosen(x) for x in answer[:-1]]))])
    session.close()
    lm.model.forget()
    return [scores.leaf[0], *scores.after]


def nats(p: Law, q: Law) -> float:
    """KL(p ‖ q)."""
    a, b = (law.scores.double().log_softmax(-1) for law in (p, q))
    return float((a.exp() * (a - b)).sum())


def speed(lm: LM, prompt: tuple[int, ...], most: int) -> float:
    """Tokens per second of plain greedy decoding, the prompt known."""
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        written = lm.generate(prompt, Settings(max_tokens=most))
        best = max(best, len(written.tokens) / (time.perf_counter() - began))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    shape = open_checkpoint(path(args.model)).shape
    found: dict[str, Any] = {}
    truth: list[tuple[tuple[int, ...], tuple[int, ...], list[Law]]] = []
    print("| weights | MB | KL mean | KL 99 % | KL worst | same best token | tokens/s |\n|---|---|---|---|---|---|---|")
    for kind in KINDS:
        lm = load(args.model, dtype=args.dtype, device=args.device, quantization=kind)
        if not truth:
            for text in PROMPTS:
                prompt = lm.encode([{"role": "user", "content": text}])
                answer = lm.generate(prompt, Settings(max_tokens=args.tokens)).tokens
                truth.append((prompt, answer, laws(lm, prompt, answer)))
        off: list[float] = []
        same: list[bool] = []
        for prompt, answer, whole in truth:
            here = laws(lm, prompt, answer)
            off += (nats(p, q) for p, q in zip(whole, here, strict=True))
            same += (p.best == q.best for p, q in zip(whole, here, strict=True))
        where = "cuda" if args.device.startswith("cuda") else "cpu"
        found[kind] = {
            "bytes": weight_bytes(shape, dtype_of(args.dtype, where), kind),
            "kl_mean": statistics.mean(off),
            "kl_99": sorted(off)[int(0.99 * len(off))],
            "kl_worst": max(off),
            "same_best": sum(same) / len(same),
            "places": len(off),
            "tokens_per_second": speed(lm, truth[0][0], args.tokens),
        }
        one = found[kind]
        print(
            f"| {kind} | {one['bytes'] / 1e6:.0f} | {one['kl_mean']:.5f} | {one['kl_99']:.4f} | {one['kl_worst']:.4f} "
            f"| {one['same_best']:.1%} | {one['tokens_per_second']:.0f} |",
            flush=True,
        )
    if args.json:
        save(args.json, found)


if __name__ == "__main__":
    main()
