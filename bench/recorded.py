"""Record what drafters meet on real texts, so that `auto` can be tuned and tested without a clock.

    python bench/recorded.py [--model smollm2] [--data FOLDER] [--tokens 96] [--json tests/data/rounds.json]

Of the first prompt of every family of Spec-Bench and its greedy text: all tokens, the target's likeliest next tokens
after each, and what the model's heads guess after each written one. Tokens are numbered by the order of their coming.
`tests/support/replayed.py` makes a model of them whose forwards take what they are said to.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from llamacpp import ROOM, prompts_of
from spec import DATA

import unspool
from unspool.runtime.network.network import Batch, Row

BEST = 4  # tokens of a law, and of a head


def recorded(lm: unspool.LM, prompt: tuple[int, ...], count: int) -> dict[str, Any]:
    """One text as drafters meet it."""
    out = lm.generate(list(prompt), unspool.Settings(max_tokens=count, temperature=0.0), method="lookup")
    text, network, heads = [*prompt, *out.tokens], lm.model.network, lm.model.heads
    slots = network.slots.take(len(text))
    row = Row(0, len(text), slots, range(len(text)))
    every = torch.arange(len(text))
    logits, hidden = network.forward(Batch(torch.tensor(text), every, slots, [row], every, (-1,)))
    network.slots.drop(slots)
    best = [list(zip(*pair, strict=True)) for pair in zip(*_likeliest(logits), strict=True)]
    ahead = range(len(prompt) - 1, len(text) - 1)
    guesses = [[told[:BEST] for told in heads.best(hidden[-1][i], text[i + 1], BEST)] for i in ahead] if heads else []
    numbers: dict[int, int] = {}

    def numbered(tokens: list[tuple[int, float]]) -> list[list[float]]:
        return [[numbers.setdefault(token, len(numbers)), round(p, 3)] for token, p in tokens]

    return {
        "prompt": len(prompt),
        "text": [numbers.setdefault(token, len(numbers)) for token in text],
        "best": [numbered(each) for each in best],
        "heads": [[numbered(told) for told in each] for each in guesses],
        "tokens": len(numbers),
    }


def _likeliest(logits: torch.Tensor) -> tuple[list[list[int]], list[list[float]]]:
    values, tokens = logits.topk(BEST)
    return tokens.tolist(), (values - logits.logsumexp(1, keepdim=True)).exp().tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--json", type=Path, default=Path("tests/data/rounds.json"))
    args = parser.parse_args()
    lm = unspool.load(args.model, device="cpu", kv_cache_tokens=ROOM)
    texts = {name: recorded(lm, prompt, args.tokens) for name, prompt in prompts_of(lm, args.data, 1).items()}
    args.json.write_text(json.dumps(texts, separators=(",", ":")) + "\n", encoding="utf-8")
    for name, found in texts.items():
        print(f"{name:20}{found['prompt']:6} + {len(found['text']) - found['prompt']} tokens")


if __name__ == "__main__":
    main()
