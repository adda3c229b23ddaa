"""Texts under fixed shapes: drafted and plain decoding must write the same tokens, greedy and drawn, on every prompt.

    python bench/identical.py [--data FOLDER] [--limit 0] [--max-tokens 16] [--methods merge:nodes=7] [--json FILE]
    python bench/identical.py --share 2/8 …     # the second of eight shares, to be done side by side

All prompts of Spec-Bench (see bench/spec.py for where to get them), each read once: under fixed shapes a prompt that is
still in the cache gives the same numbers as one that is read anew, which tests/runtime/network/test_fixed.py checks.
Every prompt is a line of FILE.jsonl as soon as it is done, and a second run goes on behind the last line.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from record import save
from spec import DATA, questions

from unspool.api.loader import load
from unspool.api.settings import Settings

TEMPERATURES = (0.0, 0.8)
EVERY = 10**6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--limit", type=int, default=0, help="prompts per family; 0 for all")
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--methods", nargs="+", default=["merge:nodes=7"])
    parser.add_argument("--share", default="1/1", help="do the k-th of n shares of the prompts, as in 2/8")
    parser.add_argument("--json", metavar="FILE", default="identical.json")
    args = parser.parse_args()
    asked = [(family, text) for family, texts in questions(args.data, 0, args.limit or EVERY).items() for text in texts]
    share, shares = map(int, args.share.split("/"))
    asked = asked[share - 1 :: shares]
    lines = Path(args.json).with_suffix(".jsonl")
    done = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    lm = load(args.model, dtype="fp32", batch_invariant=True)
    with lines.open("a") as out:
        for number, (family, text) in enumerate(asked[len(done) :], len(done) + 1):
            prompt = lm.encode([{"role": "user", "content": text}])
            row: dict[str, object] = {"family": family, "prompt_tokens": len(prompt)}
            for temperature in TEMPERATURES:
                settings = Settings(max_tokens=args.max_tokens, temperature=temperature, seed=len(prompt))
                plain = lm.generate(prompt, settings).tokens
                for name in args.methods:
                    output = lm.generate(prompt, settings, name)
                    row[f"{name} at {temperature}"] = output.tokens == plain
                    row[f"{name} at {temperature}: forwards"] = output.trace.forwards["target"]
                row[f"tokens at {temperature}"] = len(plain)
            done.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(f"{number} of {len(asked)}: {family}, {len(prompt)} tokens read", flush=True)
    names = [f"{name} at {temperature}" for name in args.methods for temperature in TEMPERATURES]
    same = {name: sum(bool(row[name]) for row in done) for name in names}
    for name, count in same.items():
        print(f"{name}: {count} of {len(done)} texts are plain decoding's")
    save(args.json, {"model": args.model, "max_tokens": args.max_tokens, "prompts": len(done), "same_text": same})


if __name__ == "__main__":
    main()
