"""Policies of filling holes on a real model: tokens per forward, time, and how likely the base model finds the text.

    python bench/denoise.py [--data FOLDER] [--limit 8] [--max-tokens 96] [--methods …] [--json FILE]

Two sets of prompts: `chat` are first turns of MT-bench (question.jsonl of Spec-Bench, not part of this repository;
--data says where it is), `plain` are texts of low entropy that stand below: copies, lists, records, templates. Every
method answers a prompt before the next comes. `nats` is the mean log-likelihood per token of what was written under the
model that the filling one was made from, read left to right; `same` the share of texts that are those of the first
method, one hole per look. Greedy unless --temperature.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from record import save
from spec import DATA, questions

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.core.law import chosen
from unspool.core.tree import Tree
from unspool.runtime.engine.contracts import ScoreRequest
from unspool_bench.suites import CHAT
from unspool_train.evaluate import repetition

FIRST = "confident:threshold=2,block=16"
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
PLAIN = (
    "Copy this list exactly: apple, banana, cherry, date, elderberry, fig, grape, honeydew, kiwi, lemon, mango.",
    "Write the numbers from 1 to 40, separated by commas.",
    "Repeat this sentence three times: The quick brown fox jumps over the lazy dog.",
    "Count down from 30 to 1, one number per line.",
    'Copy this JSON exactly: {"name": "Ada", "born": 1815, "city": "London", "field": "mathematics"}',
    "List the days of the week and the months of the year.",
    "Write the alphabet, one letter per line.",
    "Write the multiplication table of 7 up to 7 x 12, one product per line.",
)


@dataclass
class Cell:
    """One method on one set of prompts."""

    tokens: list[int] = field(default_factory=list)
    forwards: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)
    repeats: list[float] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)

    def record(self) -> dict[str, float]:
        """Sums before ratios: a long text counts for what it is."""
        return {
            "tokens": sum(self.tokens),
            "tokens_per_forward": round(sum(self.tokens) / sum(self.forwards), 3),
            "rows_per_token": round(sum(self.rows) / sum(self.tokens), 2),
            "ms_per_token": round(1e3 * sum(self.seconds) / sum(self.tokens), 2),
            "nats": round(sum(self.nats) / sum(self.tokens), 4),
            "repeated_4grams": round(mean(self.repeats), 3),
            "same": round(mean(self.same), 3),
        }


def likelihood(base: LM, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> float:
    """log p(tokens | prompt) under a model that reads left to right."""
    session = base.model.open(prompt)
    try:
        (scores,) = base.model.score([ScoreRequest(session, Tree.chain([chosen(x) for x in tokens[:-1]]))])
        laws = [scores.leaf[0], *scores.after]
        return sum(law.logprob(x) for law, x in zip(laws, tokens, strict=True))
    finally:
        session.close()


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
    parser.add_argument("--show", action="store_true", help="print the texts")
    args = parser.parse_args()
    asked = {CHAT: questions(args.data, 0, args.limit)[CHAT], "plain": list(PLAIN[: args.limit])}
    lm, base = (load(name, dtype=args.dtype, device=args.device) for name in (args.model, args.base))
    settings = Settings(max_tokens=args.max_tokens, temperature=args.temperature, seed=1)
    cells = {kind: {name: Cell() for name in args.methods} for kind in asked}
    for kind, texts in asked.items():
        for number, text in enumerate(texts, 1):
            prompt, first = lm.encode([{"role": "user", "content": text}]), None
            for name in args.methods:
                lm.model.forget()
                output = lm.generate(prompt, settings, name)
                first = output.tokens if first is None else first
                cell = cells[kind][name]
                cell.tokens.append(len(output.tokens))
                cell.forwards.append(output.trace.forwards["target"])
                cell.rows.append(output.trace.rows["target"] - len(prompt))
                cell.seconds.append(output.trace.seconds_total)
                cell.nats.append(likelihood(base, prompt, output.tokens))
                cell.repeats.append(repetition(output.tokens))
                cell.same.append(output.tokens == first)
                if args.show:
                    print(f"--- {name}: {output.trace.tokens_per_forward:.2f}\n{output.text}", flush=True)
            print(f"{kind} {number} of {len(texts)}", flush=True)
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


if __name__ == "__main__":
    main()
