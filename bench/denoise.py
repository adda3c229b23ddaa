"""Policies of filling holes on a real model: tokens per forward, time, and how likely the base model finds the text.

    python bench/denoise.py [--data FOLDER] [--limit 8] [--max-tokens 96] [--methods …] [--json FILE] [--figure SVG]
    python bench/denoise.py --drawn bench/results/denoise-h200.json --figure docs/denoise.svg

Two sets of prompts: `chat` are first turns of MT-bench (question.jsonl of Spec-Bench, not part of this repository;
--data says where it is), `plain` are texts of low entropy that stand below: copies, lists, records, templates. Every
method answers a prompt before the next comes. `nats` is the mean log-likelihood per token of what was written under the
model that the filling one was made from, read left to right; `same` the share of texts that are those of the first
method, one hole per look. Greedy unless --temperature. `unspool bench denoise` does the same on prompts of its own,
with thresholds swept, and draws it.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from record import save
from spec import DATA, questions

from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool_bench.pareto import chart
from unspool_bench.suites import CHAT
from unspool_bench.unmask_policies import FIRST, PLAIN, measured

METHODS = [
    FIRST,
    "plain",
    "merge",
    "masks",
    "denoised",
    "confident:threshold=0.95,block=16",
    "confident:threshold=0.9,block=16",
    "confident:threshold=0.9,block=32",
    "confident:threshold=0.7,block=16",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--model", default="smollm2-diffusion")
    parser.add_argument("--base", default="smollm2", help="the model whose likelihood is told")
    parser.add_argument("--limit", type=int, default=8, help="prompts of each set")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--figure", type=Path, metavar="SVG", help="draw it, as `unspool bench denoise` does")
    parser.add_argument("--drawn", type=Path, metavar="FILE", help="draw this result, and measure nothing")
    parser.add_argument("--show", action="store_true", help="print the texts")
    args = parser.parse_args()
    if args.drawn and args.figure:
        read = json.loads(args.drawn.read_text("utf-8"))
        args.figure.write_text(chart(read["methods"], read["model"], read["base"]), "utf-8")
        return
    asked = {CHAT: questions(args.data, 0, args.limit)[CHAT], "plain": list(PLAIN[: args.limit])}
    lm, base = (load(name, dtype=args.dtype, device=args.device) for name in (args.model, args.base))
    settings = Settings(max_tokens=args.max_tokens, temperature=args.temperature, seed=1)
    done = Counter[str]()

    def advance(kind: str, name: str, text: str) -> None:
        done[kind] += 1
        if args.show:
            print(f"--- {name}\n{text}", flush=True)
        print(f"{kind} {done[kind]} of {len(asked[kind]) * len(args.methods)}", flush=True)

    cells = measured(lm, base, asked, args.methods, settings, advance)
    table = {kind: {name: cell.record() for name, cell in row.items()} for kind, row in cells.items()}
    for kind, rows in table.items():
        width = max(map(len, rows)) + 2
        heads = next(iter(rows.values()))
        print(f"\n{kind:{width}}" + "".join(f"{head:>20}" for head in heads))
        for name, row in rows.items():
            print(f"{name:{width}}" + "".join(f"{value:>20}" for value in row.values()))
    if args.json:
        names = ("model", "base", "limit", "max_tokens", "temperature", "dtype", "device")
        save(args.json, {**{name: getattr(args, name) for name in names}, "methods": table})
    if args.figure:
        args.figure.write_text(chart(table, args.model, args.base), "utf-8")


if __name__ == "__main__":
    main()
