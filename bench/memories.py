"""What a shared memory brings: tokens per forward of two calls with twelve samples each, by the scope of the memory.

    python bench/memories.py --json bench/results/memories-cpu.json

Forwards are counted, not timed. The seeds of the second call are others than those of the first.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from record import save

import unspool
from unspool.api.writer import Output
from unspool.recipes.methods import method

METHODS = (
    ("stand@request", "stand@batch", "stand@process"),
    ("recycle@request", "recycle@batch", "recycle@process"),
    ("bigram_recycling@request", "bigram_recycling@batch", "bigram_recycling@process"),
    ("suffixtree@request", "suffixtree@batch", "suffixtree@process"),
)
QUESTION = [{"role": "user", "content": "Write one sentence about the sea."}]


def tokens_per_forward(outputs: list[Output]) -> float:
    """Tokens of all texts over forwards of the target."""
    return sum(o.trace.tokens for o in outputs) / sum(o.trace.forwards["target"] for o in outputs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    lm = unspool.load(given.model)
    settings = unspool.Settings(max_tokens=given.tokens, temperature=0.7, seed=3, n=given.samples)
    rows = []
    for spec in (spec for family in METHODS for spec in family):
        made = method(spec)
        calls = [lm.samples(QUESTION, replace(settings, seed=seed), made) for seed in (3, 99)]
        rows.append(
            {
                "method": spec,
                "tokens_per_forward": [round(tokens_per_forward(call), 3) for call in calls],
                "warm_entries": [call[0].trace.warm for call in calls],
            }
        )
        print(f"{spec:28} {rows[-1]['tokens_per_forward']}  warm {rows[-1]['warm_entries']}", flush=True)
    if given.json is not None:
        about = {"model": given.model, "samples": given.samples, "max_tokens": given.tokens, "temperature": 0.7}
        save(given.json, {**about, "rows": rows})


if __name__ == "__main__":
    main()
