"""Trained drafters × families of prompts: acceptance per depth, tokens per forward, where the time goes, speed-up.

    python bench/drafters.py FOLDER [FOLDER ...] [--data FOLDER] [--limit 2] [--max-tokens 128] [--json FILE]
    python bench/drafters.py drafter/ --device cuda --dtype bf16 --batch-invariant     # texts must be plain decoding's

Every folder is a drafter for --model. The prompts are Spec-Bench's (question.jsonl, --data), the first turn of each
question as a user's message, one text at a time. Each method writes all prompts of a family twice, and the second time
counts, so that nothing is captured or compiled in it; plain decoding goes before every method, so that drifts of the
machine hit both alike. `draft ms` is per round, `verify ms` per forward of the target. A trace counts as accepted what
stood of a round's path, so that rates by depth are those of rounds. With --json, a Markdown table is written beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from record import save
from spec import DATA, questions

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.api.trained_draft import examine
from unspool.core.errors import BadRequest, UnspoolError
from unspool.core.trace import Trace

PLAIN = "plain"
METHODS = ("chain:depth=3", "chain:depth=5", "likeliest:width=4,depth=4,nodes=16", "likeliest:width=8,depth=6,nodes=60")
Prompts = Sequence[tuple[int, ...]]


def written(lm: LM, prompts: Prompts, method: str, settings: Settings) -> tuple[list[tuple[int, ...]], Trace, float]:
    """The texts of a method, all their traces together, and the seconds that they took."""
    texts, traces = [], []
    for _ in range(2):
        texts, traces, began = [], [], time.perf_counter()
        for prompt in prompts:
            lm.model.forget()
            output = lm.generate(prompt, settings, method)
            texts.append(tuple(output.tokens))
            traces.append(output.trace)
        wall = time.perf_counter() - began
    return texts, sum(traces[1:], traces[0]), wall


def figures(lm: LM, prompts: Prompts, method: str, settings: Settings) -> dict[str, Any]:
    """One method on one family, beside plain decoding."""
    plain, before, plain_wall = written(lm, prompts, PLAIN, settings)
    texts, trace, wall = written(lm, prompts, method, settings)
    forwards = max(trace.forwards["target"], 1)
    return {
        "acceptance": [round(rate, 4) for rate in trace.per_position_acceptance_rate],
        "tokens_per_forward": round(trace.tokens_per_forward, 3),
        "tokens_per_round": round(trace.mean_acceptance_length, 3),
        "draft_ms": round(1e3 * trace.seconds_draft / max(trace.rounds, 1), 3),
        "verify_ms": round(1e3 * trace.seconds_forward / forwards, 3),
        "plain_ms": round(1e3 * plain_wall / max(before.tokens, 1), 3),
        "speed_up": round((trace.tokens / wall) / (before.tokens / plain_wall), 3),
        "same_text": sum(a == b for a, b in zip(texts, plain, strict=True)),
        "prompts": len(texts),
    }


def averaged(families: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The mean over families, where each counts alike."""
    rows = list(families.values())
    found = {
        name: round(mean(row[name] for row in rows), 3)
        for name in ("tokens_per_forward", "tokens_per_round", "draft_ms", "verify_ms", "plain_ms", "speed_up")
    }
    deepest = max(len(row["acceptance"]) for row in rows)
    rates = [mean((row["acceptance"] + [0.0] * deepest)[depth] for row in rows) for depth in range(deepest)]
    told = {"same_text": sum(row["same_text"] for row in rows), "prompts": sum(row["prompts"] for row in rows)}
    return {"acceptance": [round(rate, 3) for rate in rates], **found, **told}


def about(folder: Path, lm: LM) -> dict[str, Any]:
    """What a drafter is, how well it fits on a sample text, and what its training says of itself."""
    assert lm.drafter is not None
    network = lm.drafter.network
    report = examine(lm)
    found: dict[str, Any] = {
        "drafter": network.spec.title,
        "parameters": sum(tensor.numel() for name, tensor in network.tensors.items() if name != "ids"),
        "sample": [round(rate, 3) for rate in report.told.right],
    }
    log = folder / "train.jsonl"
    if log.is_file():
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        ends = [line for line in lines if line["kind"] == "end"]
        exams = [line for line in lines if line["kind"] == "exam"]
        found["minutes"] = round(ends[-1]["seconds"] / 60, 1) if ends else None
        found["held_out"] = {sort: exams[-1][sort] for sort in ("greedy", "drawn") if exams and sort in exams[-1]}
    return found


def lines_of(result: dict[str, Any]) -> list[str]:
    """The results as a Markdown table."""
    heads = (
        "drafter",
        "T",
        "method",
        "accepted by depth",
        "tokens/forward",
        "draft ms",
        "verify ms",
        "speed-up",
        "same",
    )
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, one in result.items():
        for temperature, methods in one["temperatures"].items():
            for method, cell in methods.items():
                if "failed" in cell:
                    lines.append(f"| {name} | {temperature} | {method} | failed: {cell['failed']} | | | | | |")
                    continue
                row = cell["mean"]
                rates = " ".join(f"{rate:.2f}" for rate in row["acceptance"])
                same = f"{row['same_text']}/{row['prompts']}"
                parts = (f"{row[key]:.2f}" for key in ("tokens_per_forward", "draft_ms", "verify_ms", "speed_up"))
                lines.append(f"| {name} | {temperature} | {method} | {rates} | {' | '.join(parts)} | {same} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("drafters", nargs="+", type=Path, help="folders of drafters")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--temperatures", nargs="+", type=float, default=(0.0, 1.0))
    parser.add_argument("--batch-invariant", action="store_true", help="texts equal to plain decoding's bit for bit")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first prompts of each family")
    parser.add_argument("--limit", type=int, default=2, help="prompts per family")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    asked, result = questions(args.data, args.skip, args.limit), dict[str, Any]()
    for folder in args.drafters:
        lm = load(args.model, draft=folder, dtype=args.dtype, device=args.device, batch_invariant=args.batch_invariant)
        result[folder.name] = one = {**about(folder, lm), "temperatures": {}}
        print(f"{folder}: {one['drafter']}, {one['parameters']:,} parameters, sample text {one['sample']}", flush=True)
        for temperature in args.temperatures:
            settings = Settings(max_tokens=args.max_tokens, temperature=temperature, seed=1)
            methods = one["temperatures"][str(temperature)] = {}
            for method in args.methods:
                cells: dict[str, dict[str, Any]] = {}
                try:
                    for family, texts in asked.items():
                        prompts = [lm.encode([{"role": "user", "content": text}]) for text in texts]
                        cells[family] = figures(lm, prompts, method, settings)
                except (UnspoolError, BadRequest, RuntimeError) as error:
                    methods[method] = {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
                    print(f"T {temperature} {method}: {methods[method]}", flush=True)
                    continue
                methods[method] = {"mean": averaged(cells), "families": cells}
                print(f"T {temperature} {method}: {methods[method]['mean']}", flush=True)
                if args.json:
                    names = ("model", "batch_invariant", "skip", "limit", "max_tokens", "dtype", "device")
                    save(args.json, {**{name: getattr(args, name) for name in names}, "drafters": result})
    lines = lines_of(result)
    print("\n".join(lines))
    if args.json:
        Path(args.json).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
