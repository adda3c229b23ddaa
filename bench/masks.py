"""What a constraint costs per token: to read the token and compute what may follow, and to apply that to scores.

Part of bench/constrained.py.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from forms import SCHEMA, Item

from unspool.api.lm import LM
from unspool.core.law import Law
from unspool.rules.constrain import Constrained, json_schema


def costs(lm: LM, items: list[Item], rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Microseconds per token to read it, to compute the mask and to apply it, over all texts that a schema binds."""
    devices = [torch.device("cpu")] + ([torch.device("cuda")] if torch.cuda.is_available() else [])
    found: dict[str, list[float]] = {}
    for device in devices:
        law = Law(torch.randn(lm.vocabulary.size, device=device))
        for row in rows:
            item = items[row["item"]]
            if item.kind != SCHEMA:
                continue
            warp = Constrained(json_schema(item.source).fit(lm.vocabulary))
            state = warp.start(())
            for token in row["tokens"]:
                both, again = _seconds(warp, state, law), _seconds(warp, state, law)  # the second time it is known
                found.setdefault(f"mask ({device.type})", []).append(max(0.0, both - again))
                found.setdefault(f"apply ({device.type})", []).append(again)
                found.setdefault(f"mask + apply ({device.type})", []).append(both)
                state = warp.step(state, token)
    return {name: _spread(times) for name, times in found.items()}


def _seconds(warp: Constrained, state: Any, law: Law) -> float:
    begin = perf_counter()
    warp(state, law)
    if law.scores.is_cuda:
        torch.cuda.synchronize()
    return perf_counter() - begin


def _spread(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {name: round(1e6 * times[int(share * (len(times) - 1))], 1) for name, share in at.items()} | {
        "steps": len(times)
    }
