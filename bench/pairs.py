"""Draft models for larger targets: tokens per forward, acceptance and time beside plain decoding, with intervals.

    python bench/pairs.py --models FOLDER [--limit 4] [--tokens 24] [--temperature 0] [--only TARGET] [--json FILE]

Every pair of PAIRS answers the prompts of `unspool bench`, one at a time and from cold caches, by plain decoding and by
the method in turn, so that what else the machine does hits both. `speed` is plain's seconds per token over the
method's; its interval is twice the standard error of that ratio over prompts. What was measured is kept: run the same
command again and it goes on; a row has its own machine and commit. FOLDER has the targets as TARGET.gguf; one that is
not there is left out, which is said.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from likeness import work
from record import save

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool_bench.journal import Journal
from unspool_bench.machine import machine
from unspool_bench.suites import Spec

PAIRS = (
    ("qwen2.5-coder-1.5b", "smollm2", "chain:depth=4"),  # TLI: they share tokens, not a tokenizer
    ("qwen2.5-coder-1.5b", "smollm2", "slem:depth=6"),
    ("qwen2.5-coder-1.5b", "layers:21", "chain:depth=3"),  # its own early exit
    ("qwen2.5-coder-1.5b", "layers:0-9,12-27", "chain:depth=3"),  # two layers left out
    ("gemma-3-270m", "smollm2", "chain:depth=4"),
    ("gemma-3-270m", "smollm2", "slem:depth=6"),
    ("gemma-3-270m", "layers:14", "chain:depth=3"),
)
FAMILIES = 6
SEED = 1


def ratio(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Σ first / Σ second, and the standard error of that over pairs."""
    below, count = sum(b for _, b in pairs), len(pairs)
    mean = sum(a for a, _ in pairs) / below
    spread = sum((a - mean * b) ** 2 for a, b in pairs)
    return mean, math.sqrt(spread * count / max(1, count - 1)) / below


def answered(lm: LM, prompt: tuple[int, ...], settings: Settings, method: str) -> tuple[Any, float]:
    """One answer from cold caches, and its seconds."""
    for model in lm.models().values():
        model.forget()
    began = perf_counter()
    output = lm.generate(prompt, settings, method)
    return output, perf_counter() - began


def measured(lm: LM, prompts: Sequence[str], settings: Settings, method: str) -> dict[str, Any]:
    """The figures of one method on one pair of models."""
    chats = lm.vocabulary.chat_template is not None
    texts = [lm.encode([{"role": "user", "content": prompt}] if chats else prompt) for prompt in prompts]
    for way in ("plain", method):
        answered(lm, texts[0][-8:], settings, way)  # what is set up at the first use
    runs = [[answered(lm, text, settings, way) for way in ("plain", method)] for text in texts]
    each = [(a / len(plain.tokens), b / len(ours.tokens)) for (plain, a), (ours, b) in runs]
    speed, error = ratio(each)
    outputs = [ours for _, (ours, _) in runs]
    return {
        **work(outputs),
        "same": sum(plain.tokens == ours.tokens for (plain, _), (ours, _) in runs),
        "speed": round(speed, 3),
        "speed_error": round(error, 3),
    }


def told(found: dict[str, Any]) -> str:
    """The figures in a line."""
    rate, error = found["draft_acceptance_rate"] or 0, found["tokens_per_forward_error"]
    return (
        f"{found['tokens_per_forward']:.2f} ± {2 * error:.2f} tokens per forward, {rate:.0%} of drafts stood, "
        f"{found['speed']:.2f}× ± {2 * found['speed_error']:.2f} of plain's speed, "
        f"{found['same']} of {found['texts']} the same"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, metavar="FOLDER", help="with TARGET.gguf of each target")
    parser.add_argument("--limit", type=int, default=4, help="prompts, each of another family")
    parser.add_argument("--tokens", type=int, default=24, help="the most that an answer may have")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--only", default="", help="this target alone")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    every = Spec(None, -(-args.limit // FAMILIES), args.tokens).cases()
    cases = [every[i * len(every) // args.limit] for i in range(args.limit)]
    asked = {
        "prompts": ", ".join(case.family for case in cases),
        "max_tokens": args.tokens,
        "temperature": args.temperature,
    }
    beside = None if args.json is None else args.json.with_suffix(".jsonl")
    journal = Journal(beside, asked)
    if args.json is not None and args.json.exists() and not len(journal):
        read = json.loads(args.json.read_text("utf-8"))
        for row in read["pairs"]:
            journal.add((row.pop("target"), row.pop("draft"), row.pop("method")), {"machine": read["machine"], **row})
    settings = Settings(max_tokens=args.tokens, temperature=args.temperature, seed=SEED)
    for target, draft, method in PAIRS:
        if args.only not in ("", target) or (target, draft, method) in journal:
            continue
        file = args.models / f"{target}.gguf"
        if not file.exists():
            print(f"{target} ← {draft}, {method}: left out, as there is no {file}", flush=True)
            continue
        found = measured(load(file, draft=draft), [case.prompts[0] for case in cases], settings, method)
        found = {"machine": machine(), **found}
        journal.add((target, draft, method), found)
        print(f"{target} ← {draft}, {method}: {told(found)}", flush=True)
    if args.json:
        names = ("target", "draft", "method")
        rows = [dict(zip(names, key, strict=True)) | row for key, row in journal.items()]
        save(str(args.json), asked | {"pairs": rows})
        beside.unlink(missing_ok=True)  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
