"""Many texts at a time on the GPU: tokens per second by plain decoding and by drafts, and requests that come and go.

Part of bench/gpu.py, which runs all of it.
"""

from __future__ import annotations

import random
import time
from typing import Any

import torch
from step import mirror

from unspool.api.lm import LM
from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.core.warp import Temperature
from unspool.models.address import path
from unspool.models.weights import open_checkpoint
from unspool.recipes.methods import method
from unspool.runtime.engine.engine import Engine

Row = tuple[str, str, str]  # what, measured, bar


def throughput(lm: LM, rows: int, most: int, heat: float, spec: str = "plain") -> float:
    """Tokens per second of a batch through the engine, no text ending early."""
    texts = [lm.encode([{"role": "user", "content": f"Tell me about the number {i}."}]) for i in range(rows)]
    best = 0.0
    for _ in range(2):
        lm.model.forget()
        engine = Engine(lm.models(), lm.price)
        began = time.perf_counter()
        jobs = [
            engine.submit(method(spec), text, Philox(i, 0), Temperature(heat), Stop(most=most), laws=False)
            for i, text in enumerate(texts)
        ]
        engine.run()
        best = max(best, sum(len(job.result().tokens) for job in jobs) / (time.perf_counter() - began))
    return best


def batches(lm: LM, name: str) -> tuple[dict[str, Any], list[Row]]:
    """Tokens per second of one text and of many, against transformers; and drafts in batches, against none."""
    theirs = transformers_speed(name)
    found = {
        "1": throughput(lm, 1, 512, 0.0),
        "128": throughput(lm, 128, 512, 0.0),
        "4096": throughput(lm, 4096, 512, 1.0),
    }
    rows = [
        (
            "greedy, batch 1, 512 tokens",
            f"{found['1']:,.0f} tokens/s, {found['1'] / theirs['1']:.0f}× transformers",
            "≥ 30×",
        ),
        (
            "batch 128, 512 tokens",
            f"{found['128']:,.0f} tokens/s, {found['128'] / theirs['128']:.0f}× transformers",
            "≥ 25×",
        ),
        ("batch 4096, T = 1, 512 tokens", f"{found['4096']:,.0f} tokens/s", "≥ 200,000"),
    ]
    for size in (4, 8, 32):
        pairs = [[throughput(lm, size, 256, 0.0, spec) for spec in ("plain", "auto")] for _ in range(4)]
        plain, auto = (max(speeds) for speeds in zip(*pairs, strict=True))
        found[f"auto at {size}"] = auto / plain
        rows.append((f"auto over plain, batch {size}", f"{auto / plain:.2f}×", "≥ 0.97×"))
    return found, rows


def transformers_speed(name: str) -> dict[str, float]:
    """Tokens per second of transformers' generate, alone and with 128 rows."""
    model = mirror(open_checkpoint(path(name)), torch.bfloat16).to("cuda")
    found = {}
    for rows in (1, 128):
        text = torch.randint(5, 1000, (rows, 40), device="cuda")
        for most in (3, 32):
            began = time.perf_counter()
            model.generate(
                text,
                attention_mask=torch.ones_like(text),
                do_sample=False,
                max_new_tokens=most,
                min_new_tokens=most,
                pad_token_id=0,
            )
            torch.cuda.synchronize()
        found[str(rows)] = 32 * rows / (time.perf_counter() - began)
    return found


def turmoil(lm: LM) -> tuple[dict[str, Any], list[Row]]:
    """1,000 requests of mixed lengths and methods, joining at any time, one in five cancelled."""
    dice, engine, live = random.Random(1), Engine(lm.models(), lm.price), []
    for i in range(1000):
        text = [dice.randrange(3, 1000) for _ in range(dice.randrange(1, 300))]
        live.append(
            engine.submit(
                method(dice.choice(("plain", "suffix", "bigram_recycling"))),
                text,
                Philox(i, 0),
                Temperature(1.0),
                Stop(most=dice.randrange(1, 120)),
                room=len(text) + 200,
                laws=False,
            )
        )
        if dice.random() < 0.2:
            engine.cancel(dice.choice(live))
        if dice.random() < 0.3:
            engine.step()
    engine.run()
    lm.model.forget()
    errors = sum(job.error is not None for job in live)
    return {"slots": lm.model.slots.in_use, "errors": errors}, [
        ("1,000 requests, a fifth cancelled", f"{lm.model.slots.in_use} slots left, {errors} errors", "0 slots")
    ]
