"""Fixed shapes on the GPU: is every text that of plain decoding alone, in every token, and what does that cost?

    python bench/steady.py [--model smollm2] [--data FOLDER] [--limit 2] [--tokens 128] [--json FILE]

bench/gpu.py runs it on a few prompts; alone it takes --limit prompts of every family of Spec-Bench. Texts are greedy
and drawn at 0.8, by every method alone and by all methods side by side in one batch.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path
from typing import Any

from record import save
from spec import DATA, chats
from warped import speed

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.core.chance import Philox
from unspool.recipes.methods import method
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda.cuda_graph_executor import CudaGraphExecutor
from unspool.runtime.engine.engine import Engine

Row = tuple[str, str, str]  # what, measured, bar
Text = tuple[int, ...]
METHODS = ("lookup", "suffix", "recycle", "bigram_recycling", "merge", "on_device", "auto")
HEATS = (0.0, 0.8)
CROWDS = (1, 8, 32, 128)
ROOM = 200_000  # tokens of cache: no text waits for another to end


def steady(name: str, texts: list[Text], most: int = 96) -> tuple[dict[str, Any], list[Row]]:
    """How many texts are plain decoding's, and tokens per second with fixed shapes and with free ones."""
    lm, free = (
        load(name, dtype="bf16", device="cuda", kv_cache_tokens=ROOM, batch_invariant=fixed) for fixed in (True, False)
    )
    gc.collect()
    gc.freeze()  # as in bench/gpu.py
    assert isinstance(lm.model, CachedModel)
    assert isinstance(lm.model.executor, CudaGraphExecutor)
    found: dict[str, Any] = {"methods": {}, "free_plain": rate(free, texts, "plain", most)}
    same = total = 0
    for heat in HEATS:
        wanted = [answer(lm, text, "plain", most, heat) for text in texts]
        for spec in METHODS:
            agree = sum(answer(lm, text, spec, most, heat) == own for text, own in zip(texts, wanted, strict=True))
            found["methods"].setdefault(spec, {})[f"same at {heat:g}"] = agree
            same, total = same + agree, total + len(texts)
        agree = sum(a == b for a, b in zip(together(lm, texts, most, heat), wanted, strict=True))
        found.setdefault("batch", {})[f"same at {heat:g}"] = agree
        same, total = same + agree, total + len(texts)
    rates = {spec: rate(lm, texts, spec, most) for spec in ("plain", *METHODS)}
    for spec, per in rates.items():
        found["methods"].setdefault(spec, {})["tokens_per_second"] = per
    found |= {"same": same, "texts": total, "crowds": {}}
    wanted, table = Settings(max_tokens=most, ignore_eos=True), []
    for crowd in CROWDS:
        prompts = [texts[i % len(texts)] for i in range(crowd)]
        fixed, loose = (speed(each, prompts, [wanted] * crowd) for each in (lm, free))
        found["crowds"][str(crowd)] = {"fixed": fixed, "free": loose}
        named = f"fixed shapes: {crowd} text{'s' * (crowd > 1)}, plain"
        table.append((named, f"{fixed:,.0f} tokens/s, {fixed / loose:.2f}× free shapes", "≥ 0.92×"))
    best = max(METHODS, key=lambda spec: rates[spec])
    plain, top, loose = rates["plain"], rates[best], found["free_plain"]
    speeds = f"plain {plain:,.0f} tokens/s ({plain / loose:.2f}× free shapes), {best} {top:,.0f} ({top / loose:.2f}×)"
    return found, [
        ("fixed shapes: texts equal to plain decoding's alone", f"{same} of {total}", "all"),
        ("fixed shapes: speed", speeds, ""),
        *table,
    ]


def settings_of(text: Text, most: int, heat: float) -> Settings:
    """Each text with a seed of its own."""
    return Settings(max_tokens=most, temperature=heat, seed=len(text))


def answer(lm: LM, text: Text, spec: str, most: int, heat: float) -> Text:
    """A text by a method, from an empty cache."""
    lm.model.forget()
    return lm.generate(text, settings_of(text, most, heat), spec).tokens


def together(lm: LM, texts: list[Text], most: int, heat: float) -> list[Text]:
    """All texts in one batch, each by the next method."""
    lm.model.forget()
    engine, jobs = Engine(lm.models(), lm.price), []
    for number, text in enumerate(texts):
        wanted, rule = settings_of(text, most, heat), method(METHODS[number % len(METHODS)])
        warp, stop = wanted.warp(lm.vocabulary), wanted.stop_rule(lm.vocabulary)
        jobs.append(engine.submit(rule, text, Philox(wanted.seed, 0), warp, stop, laws=False))
    engine.run()
    return [job.result().tokens for job in jobs]


def rate(lm: LM, texts: list[Text], spec: str, most: int) -> float:
    """Tokens per second of greedy texts, one after the other; graphs are made before."""
    for _ in range(2):
        lm.model.forget()
        began = time.perf_counter()
        tokens = sum(len(lm.generate(text, Settings(max_tokens=most), spec).tokens) for text in texts)
        spent = time.perf_counter() - began
    return tokens / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--limit", type=int, default=2, help="prompts per family")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    texts = chats(load(args.model, device="cpu"), args.data, args.limit)
    found, rows = steady(args.model, texts, args.tokens)
    for row in rows:
        print(" | ".join(row))
    for spec, told in found["methods"].items():
        print(f"{spec:10}", ", ".join(f"{key} {value:.0f}" for key, value in told.items()))
    if args.json:
        save(args.json, {"model": args.model, "tokens": args.tokens, **found})


if __name__ == "__main__":
    main()
