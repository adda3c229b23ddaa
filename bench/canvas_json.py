"""JSON schemas on a canvas: does every text that a diffusion model fills validate, and what does keeping to it cost?

python bench/canvas_json.py [--data FOLDER] [--limit N] [--tokens N] [--method NAME] [--batch N] [--json FILE]

The schemas are those of JSONSchemaBench, sampled by a hash of their names. Those that the grammar refuses, and those
without a text short enough, are counted and left out: both are told before the model is asked anything.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import jsonschema
import torch
from record import save

import unspool
from unspool.api.settings import Settings
from unspool.core.canvas import Canvas
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.loops.guard import guarded
from unspool.recipes.methods import method
from unspool.rules.constrain import json_schema
from unspool.runtime.engine.engine import Engine

DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "jsonschemabench"
ASK = "Answer with JSON only. The answer must follow this JSON schema:\n"


@dataclass(frozen=True)
class Item:
    """A schema that can be asked for, with its settings."""

    name: str
    schema: Any
    settings: Settings


def sampled(folder: Path) -> Iterator[tuple[str, Any]]:
    """All schemas, in an order that has nothing to do with what is in them."""
    rows: list[tuple[str, Any]] = []
    for path in sorted(folder.glob("*.jsonl.zst")):
        lines = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True).stdout.splitlines()
        rows += [(row["id"], row["schema"]) for row in map(json.loads, lines)]
    yield from sorted(rows, key=lambda row: hashlib.sha256(row[0].encode()).digest())


def usable(lm: unspool.LM, folder: Path, limit: int, tokens: int, temperature: float, seen: Counter[str]) -> list[Item]:
    """The first `limit` schemas that can be enforced and fit; `seen` counts the others by reason."""
    items: list[Item] = []
    for name, schema in sampled(folder):
        try:
            settings = Settings(
                constraint=json_schema(schema), max_tokens=tokens, temperature=temperature, seed=len(items)
            )
            warp = settings.warp(lm.vocabulary)
        except BadRequest:
            seen["refused: cannot be enforced"] += 1
            continue
        try:
            guarded(warp, Canvas.blank((0,), tokens), settings.stop_rule(lm.vocabulary))
        except BadRequest:
            seen["refused: no text that fits was found"] += 1
            continue
        items.append(Item(name, schema, settings))
        if len(items) == limit:
            break
    return items


def valid(text: str, schema: Any) -> bool:
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind(schema).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def run(lm: unspool.LM, items: list[Item], name: str) -> list[dict[str, Any]]:
    """Fill the canvases of some schemas together."""
    engine = Engine(lm.models())
    jobs = []
    for item in items:
        prompt = lm.encode([{"role": "user", "content": ASK + json.dumps(item.schema)[:200]}])
        warp, stop = item.settings.warp(lm.vocabulary), item.settings.stop_rule(lm.vocabulary)
        room = len(prompt) + item.settings.max_tokens
        jobs.append(engine.submit(method(name), prompt, Philox(item.settings.seed), warp, stop, room, laws=False))
    engine.run()
    rows = []
    for item, job in zip(items, jobs, strict=True):
        row: dict[str, Any] = {"schema": item.name}
        try:
            done = job.result()
            text = lm.vocabulary.decode(done.tokens)
            row |= {"outcome": "valid" if valid(text, item.schema) else "INVALID", "text": text, "reason": done.reason}
        except Exception as error:
            row |= {"outcome": f"error: {type(error).__name__}: {error}"}
        looks = max(1, job.trace.forwards["target"])
        row |= {"looks": looks, "rows_per_look": job.trace.rows["target"] / looks}
        row |= {"host_ms_per_look": job.trace.seconds_draft / looks * 1e3}
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--method", default="confident")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    if not given.data.is_dir():
        raise SystemExit(f"{given.data} is not here; give the folder of JSONSchemaBench's *.jsonl.zst with --data")
    torch.set_num_threads(given.threads)
    lm = unspool.load("smollm2-diffusion")
    seen: Counter[str] = Counter()
    items = usable(lm, given.data, given.limit, given.tokens, given.temperature, seen)
    print(f"{len(items)} schemas; left out: {dict(seen)}", flush=True)
    rows: list[dict[str, Any]] = []
    began = perf_counter()
    for start in range(0, len(items), given.batch):
        rows += run(lm, items[start : start + given.batch], given.method)
        outcomes = Counter(row["outcome"] for row in rows)
        print(f"{len(rows)} in {perf_counter() - began:.0f} s: {dict(outcomes)}", flush=True)
        host = sorted(row["host_ms_per_look"] for row in rows)
        result = {
            "command": f"python bench/canvas_json.py --limit {given.limit} --tokens {given.tokens} "
            f"--method {given.method} --temperature {given.temperature} --batch {given.batch}",
            "load": os.getloadavg()[0],
            "left_out": dict(seen),
            "outcomes": dict(outcomes),
            "looks": sum(row["looks"] for row in rows),
            "host_ms_per_look": {"median": host[len(host) // 2], "worst": host[-1]},
            "rows": rows,
        }
        if given.json:
            save(given.json, result)
    for row in rows:
        if row["outcome"] != "valid":
            print(row)


if __name__ == "__main__":
    main()
