"""Drafts by a model's own layers: how often they stand, and what that brings, by which layers are left.

    python bench/exits.py [--data FOLDER] [--limit 1] [--tokens 48] [--layers 28 0-4,7-29 …] [--json FILE]

Greedy texts on --limit prompts of every family of Spec-Bench (see bench/spec.py for where to get them), by
`chain:depth=3` with the draft made of those layers. `price` is the share of layers, head and embedding apart.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from record import save
from spec import DATA, chats
from tqdm import tqdm

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.self_draft import LAYERS, layers_of, shortcut
from unspool.api.settings import Settings
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.network.llama import Llama

Text = tuple[int, ...]
METHOD = "chain:depth=3"
CHOICES = ("28", "25", "20", "15", "0-4,7-29", "0-9,12-29", "0-14,17-29", "0-19,22-29", "0-24,27-29", "0-9,14-29")


def measured(
    lm: LM, layers: str, texts: list[tuple[int, ...]], plain: list[tuple[int, ...]], most: int
) -> dict[str, Any]:
    """What comes of drafting by these layers."""
    assert isinstance(lm.model, CachedModel)
    assert isinstance(lm.model.network, Llama)
    count, total = lm.model.network.layers, Counter[str]()
    drafting = replace(lm, draft=shortcut(lm, LAYERS + layers))
    for text, wanted in zip(texts, plain, strict=True):
        lm.model.forget()
        output = drafting.generate(text, Settings(max_tokens=most), METHOD)
        trace = output.trace
        total += Counter(drafted=trace.drafted, accepted=trace.accepted_tokens, tokens=trace.tokens)
        total += Counter(forwards=trace.forwards["target"], same=int(output.tokens == wanted))
    return {
        "price": len(layers_of(LAYERS + layers, count)) / count,
        "accepted": total["accepted"] / total["drafted"],
        "tokens_per_forward": total["tokens"] / total["forwards"],
        "same": f"{total['same']} of {len(texts)}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--limit", type=int, default=1, help="prompts per family")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--layers", nargs="+", default=list(CHOICES), help="how many of the first, or ranges")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    lm = load(args.model)
    texts = chats(lm, args.data, args.limit)
    plain = [lm.generate(text, Settings(max_tokens=args.tokens)).tokens for text in texts]
    found: dict[str, Any] = {}
    print(f"{'layers':16}{'price':>8}{'accepted':>10}{'tokens/forward':>16}   plain decoding's text")
    for layers in tqdm(args.layers, leave=False):
        row = found[layers] = measured(lm, layers, texts, plain, args.tokens)
        said = f"{layers:16}{row['price']:>8.2f}{row['accepted']:>10.0%}{row['tokens_per_forward']:>16.2f}"
        tqdm.write(f"{said}   {row['same']}")
    if args.json:
        about = {"model": args.model, "method": METHOD, "tokens": args.tokens, "prompts": len(texts)}
        save(args.json, {**about, "layers": found})


if __name__ == "__main__":
    main()
