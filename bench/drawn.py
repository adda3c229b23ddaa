"""A draft model's chain on the GPU: all its steps as one graph, against one forward after the other from the host.

Part of bench/gpu.py. The default model drafts for itself, so that every draft stands up to rounding and a round is all
there is to measure: `depth` steps of the draft, a check of the target, and what the host does in between.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda.graph_model import on_device

Row = tuple[str, str, str]  # what, measured, bar
Text = tuple[int, ...]
DEPTH = 4


def drawn(name: str, texts: list[Text], most: int = 128) -> tuple[dict[str, Any], list[Row]]:
    """Milliseconds per round with the chain drawn on the device and by the host, and whether the texts agree."""
    draft = load(name, dtype="bf16", device="cuda")
    lm = load(name, dtype="bf16", device="cuda", draft=draft)
    found: dict[str, Any] = {"depth": DEPTH}
    rows: list[Row] = []
    for heat in (0.0, 0.8):
        settings = Settings(temperature=heat, seed=5, max_tokens=most)
        host, device = _rounds(lm, texts, settings, draws=False), _rounds(lm, texts, settings, draws=True)
        same = sum(a == b for a, b in zip(host["texts"], device["texts"], strict=True))
        told = {"host_ms": host["ms"], "device_ms": device["ms"], "same": same, "tokens_per_round": device["gain"]}
        found[f"T = {heat:g}"] = told
        # drawn texts part where rounding in bf16 moves a law past the number that draws from it
        agree = "" if heat else f"; {same} of {len(texts)} texts the same"
        spent = f"{device['ms']:.2f} ms drawn as one graph, {host['ms']:.2f} ms step by step"
        what = f"round of chain:depth={DEPTH} with a draft model, T = {heat:g}"
        rows.append((what, f"{spent}, {device['gain']:.2f} tokens a round{agree}", ""))
    return found, rows


def _rounds(lm: LM, texts: list[Text], settings: Settings, draws: bool) -> dict[str, Any]:
    assert lm.draft is not None
    assert isinstance(lm.draft.model, CachedModel)
    on_device(lm.draft.model, speculates=draws)
    spec = f"chain:depth={DEPTH}"
    lm.generate(texts[0], settings, spec)  # makes the graphs
    times, gains, written = [], [], []
    for text in texts:
        lm.model.forget()
        lm.draft.model.forget()
        lm.generate(text, Settings(max_tokens=2), spec)  # the prompt is read, and shelved
        begin = time.perf_counter()
        output = lm.generate(text, settings, spec)
        times.append((time.perf_counter() - begin) / output.trace.rounds)
        gains.append(output.trace.tokens / output.trace.rounds)
        written.append(output.tokens)
    return {"ms": 1e3 * statistics.median(times), "gain": statistics.mean(gains), "texts": written}
