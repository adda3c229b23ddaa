"""JSONSchemaBench end to end with a model: time to the first token and per token, and what is valid, free and bound.

    python bench/json_model.py [--data FOLDER] [--limit 12] [--most 96] [--methods plain forced auto] [--json FILE]

--data holds JSONSchemaBench's *.jsonl.zst. Its schemas come in an order that has nothing to do with what is in them;
those longer than 700 characters are passed over, as a small model cannot read them. Of the others `declared` is the
share that the constraint takes, `empirical` the share of all for which the text is valid, `compliant` that of those
taken: the terms of the benchmark. `free` is plain decoding without a constraint, with the schema in the prompt alone.
A text is greedy, closed within --most tokens, and judged by the package jsonschema.

`compile` is what it takes to make the constraint, the first time; `first` from the request to the first token, the
constraint made anew; `each` per token after that; medians, in milliseconds. Every method writes a text before the next
schema comes, so that slow drifts hit all alike. Tokens per forward say what was saved where clocks cannot be trusted.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from canvas_json import DATA, sampled
from forms import ASK, LONGEST, SCHEMA, Item
from record import save

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.core.errors import BadRequest
from unspool.rules.constrain import json_schema

FREE = "free"


@dataclass
class Told:
    """What one way to write gave."""

    first: list[float] = field(default_factory=list)
    each: list[float] = field(default_factory=list)
    tokens: int = 0
    forwards: int = 0
    valid: int = 0

    def record(self, taken: int, asked: int) -> dict[str, float]:
        """Medians and shares; of `asked` schemas the constraint took `taken`."""
        return {
            "first_ms": round(1e3 * median(self.first), 2),
            "each_ms": round(1e3 * median(self.each), 3) if self.each else 0.0,
            "tokens": self.tokens,
            "tokens_per_forward": round(self.tokens / max(1, self.forwards), 3),
            "empirical": round(self.valid / asked, 3),
            "compliant": round(self.valid / taken, 3),
        }


def timed(lm: LM, item: Item, settings: Settings, spec: str, told: Told) -> None:
    """Write one text and take the times."""
    lm.model.forget()
    prompt = lm.encode([{"role": "user", "content": item.prompt}])
    began, stamps = perf_counter(), list[float]()
    stream = lm.stream(prompt, settings, spec)
    while True:
        try:
            next(stream)
        except StopIteration as end:
            output = end.value
            break
        stamps.append(perf_counter())
    told.first.append(stamps[0] - began)
    if len(stamps) > 1:
        told.each.append((stamps[-1] - stamps[0]) / (len(stamps) - 1))
    told.tokens += len(output.tokens)
    told.forwards += output.trace.forwards["target"]
    told.valid += item.valid(output.text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of JSONSchemaBench")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--limit", type=int, default=12, help="schemas that the constraint takes")
    parser.add_argument("--most", type=int, default=96, help="tokens of a text")
    parser.add_argument("--methods", nargs="+", default=["plain", "forced", "auto"])
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; 0 as it likes")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    lm = load(args.model, device=args.device)
    compiled, asked = list[float](), 0
    told = {name: Told() for name in (FREE, *args.methods)}
    for name, schema in sampled(args.data):
        if len(compiled) == args.limit:
            break
        if len(json.dumps(schema)) > LONGEST:
            continue
        asked += 1
        item = Item(name, SCHEMA, schema, ASK + json.dumps(schema))
        began = perf_counter()
        try:
            json_schema(schema).within(args.most).fit(lm.vocabulary)
        except BadRequest:
            continue
        compiled.append(perf_counter() - began)
        timed(lm, item, Settings(max_tokens=args.most), "plain", told[FREE])
        for spec in args.methods:
            timed(lm, item, Settings(max_tokens=args.most, constraint=item.form(args.most)), spec, told[spec])
        print(f"{len(compiled)} of {args.limit}: {name}", flush=True)
    taken = len(compiled)
    rows: dict[str, Any] = {name: each.record(taken, asked) for name, each in told.items()}
    heads = next(iter(rows.values()))
    print(f"\n{'':10}" + "".join(f"{head:>20}" for head in heads))
    for name, row in rows.items():
        print(f"{name:10}" + "".join(f"{value:>20}" for value in row.values()))
    print(f"declared {taken / asked:.3f} ({taken} of {asked}); compile {1e3 * median(compiled):.2f} ms")
    if args.json:
        known = {"model": args.model, "limit": args.limit, "most": args.most, "schemas": asked, "taken": taken}
        save(args.json, {**known, "compile_ms": round(1e3 * median(compiled), 2), "ways": rows})


if __name__ == "__main__":
    main()
