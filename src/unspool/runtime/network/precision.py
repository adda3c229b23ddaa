"""Which precision this CPU decodes faster in, by the clock: some have units for bfloat16, some only read it faster."""

from __future__ import annotations

from functools import lru_cache
from time import perf_counter

import torch

SIZE = 2048  # numbers on a side: more than a cache holds, as the matrices of a model are
TURNS = 7
MARGIN = 0.9  # of the time of float32: a tie goes to the more precise


@lru_cache
def fastest() -> torch.dtype:
    """bfloat16 if a matrix times a vector, what plain decoding mostly is, takes clearly less time in it; else float32.

    Cost: some 30 ms, once per process.
    """
    least = {dtype: min(_timed(dtype)) for dtype in (torch.float32, torch.bfloat16)}
    return torch.bfloat16 if least[torch.bfloat16] < MARGIN * least[torch.float32] else torch.float32


def _timed(dtype: torch.dtype) -> list[float]:
    matrix, vector = torch.ones(SIZE, SIZE, dtype=dtype), torch.ones(1, SIZE, dtype=dtype)
    times = []
    for _ in range(TURNS):
        began = perf_counter()
        torch.nn.functional.linear(vector, matrix)
        times.append(perf_counter() - began)
    return times[1:]
