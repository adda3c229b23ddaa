"""Measure adapted weights: tokens per forward against likelihood under the base, by block size and threshold."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unspool.core.errors import BadRequest

from .command import ModelSettings, command, device_of, setting
from .decoder import Decoder, Texts, filled, greedy, judged, led
from .delta_compression import read_delta
from .token_corpus import TokenCorpus
from .training_network import Frozen

ONE = 2.0  # a threshold that nothing exceeds: one token per forward


@dataclass(frozen=True)
class EvaluateSettings(ModelSettings):
    """What to measure."""

    delta: str = setting("", "The delta: a file or its folder.")
    prompts: str = setting("", "An .npz with toks and lens, or documents whose prompts are taken.")
    count: int = setting(96, "How many prompts.")
    most: int = setting(256, "Tokens per answer.")
    blocks: str = setting("8,16,32", "Block sizes.")
    windows: str = setting("8", "Sizes of a window that slides; empty: none.")
    thresholds: str = setting("0.95,0.9,0.8,0.7,0.5", "Thresholds; one per forward is always measured.")
    out: str = setting("", "A .json file to write to.")
    eager: bool = setting(False, "No CUDA graphs.")


def read_prompts(source: str, count: int, longest: int = 384) -> list[list[int]]:
    """Prompts of a file: an .npz with toks and lens, or documents; none longer than `longest` or shorter than 32."""
    if not source:
        raise BadRequest("no prompts were given; name an .npz of prompts or documents with --prompts.")
    path = Path(source)
    if path.suffix == ".npz":
        with np.load(path) as stored:
            if "plen" not in stored.files:
                ends = np.cumsum(stored["lens"].astype(np.int64))
                found = [part.tolist() for part in np.split(stored["toks"].astype(np.int64), ends[:-1])]
                return [prompt for prompt in found if 32 <= len(prompt) <= longest][:count]
    corpus = TokenCorpus.read([path])
    held = corpus.split(0.01)[1]
    documents = (corpus[int(index)] for index in held)
    found = [document.tokens[: document.prompt].tolist() for document in documents]
    return [prompt for prompt in found if 32 <= len(prompt) <= longest][:count]


def repetition(text: Sequence[int], size: int = 4) -> float:
    """The share of a text's n-grams that occurred before in it."""
    grams = [tuple(text[i : i + size]) for i in range(len(text) - size + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def evaluate(settings: EvaluateSettings) -> list[dict[str, Any]]:
    """Print a table of all settings and return it."""
    began = time.monotonic()
    device = device_of(settings.device)
    frozen = Frozen.open(settings.model, device)
    prompts = read_prompts(settings.prompts, settings.count)
    blocks, windows = (
        [int(size) for size in sizes.split(",") if size] for sizes in (settings.blocks, settings.windows)
    )
    room = max(map(len, prompts)) + settings.most + 2 * max(blocks + windows) + 1
    decoder = Decoder(frozen, len(prompts), room, 16, 2, not settings.eager)
    base = {**frozen.base, "mask": frozen.embedding.mean(0)}
    adapted = read_delta(settings.delta, device).applied(base) if settings.delta else base

    rows: list[dict[str, Any]] = []
    made: list[Texts] = []

    def add(name: str, texts: Texts, like: Texts | None, took: float) -> None:
        tokens = sum(map(len, texts.tokens))
        forwards, blocks = int(texts.forwards.sum()), int(texts.blocks.sum())
        same = [a == b for a, b in zip(texts.tokens, like.tokens, strict=True)] if like is not None else []
        rows.append(
            {
                "name": name,
                "tokens per forward": tokens / forwards,
                "with commits": tokens / (forwards + blocks),
                "exact": sum(same) / len(same) if same else None,
                "repeated": sum(map(repetition, texts.tokens)) / len(texts.tokens),
                "length": tokens / len(texts.tokens),
                "ended": sum(bool(t) and t[-1] == decoder.end for t in texts.tokens) / len(texts.tokens),
                "took": took,
            }
        )
        made.append(texts)
        print(f"# {time.monotonic() - began:.0f} s: {name}, {tokens / forwards:.2f} tokens per forward", flush=True)

    decoder.load(base)
    mark = time.monotonic()
    add("base greedy", greedy(decoder, prompts, settings.most), None, time.monotonic() - mark)
    decoder.load(adapted)
    mark = time.monotonic()
    add("adapted greedy", greedy(decoder, prompts, settings.most), made[0], time.monotonic() - mark)
    kinds = [("block", filled, size) for size in blocks] + [("window", led, size) for size in windows]
    for kind, write, size in kinds:
        one = None
        for threshold in (ONE, *map(float, settings.thresholds.split(","))):
            mark = time.monotonic()
            texts = write(decoder, prompts, size, threshold, settings.most)
            name = f"{kind} {size} one" if threshold == ONE else f"{kind} {size} > {threshold}"
            add(name, texts, one, time.monotonic() - mark)
            one = one or texts
    decoder.load(base)
    for row, texts in zip(rows, made, strict=True):
        scores = torch.cat(judged(decoder, prompts, texts.tokens))
        row["likelihood"] = float(scores.mean())
        row["unlikely"] = float((scores < -6).float().mean())
    print(table(rows))
    if settings.out:
        Path(settings.out).parent.mkdir(parents=True, exist_ok=True)
        Path(settings.out).write_text(json.dumps({"rows": rows, "texts": [t.tokens for t in made]}))
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text; `gap` is the likelihood against one per forward at the same block size."""
    heads = ("likelihood", "gap", "tokens per forward", "with commits", "exact", "repeated", "unlikely", "length")
    lines = [f"{'':<16}" + "".join(f"{head:>20}" for head in (*heads, "ended", "took"))]
    one = 0.0
    for row in rows:
        if "one" in row["name"] or "greedy" in row["name"]:
            one = row["likelihood"]
        row["gap"] = row["likelihood"] - one
        cells = (row[head] for head in (*heads, "ended", "took"))
        lines.append(f"{row['name']:<16}" + "".join(f"{'':>20}" if c is None else f"{c:>20.3f}" for c in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(command(EvaluateSettings, "Measure adapted weights by decoding held-out prompts.", evaluate))
