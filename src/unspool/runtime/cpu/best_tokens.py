"""The likeliest tokens of logits on a CPU, by one pass of the kernels where those are loaded.

PyTorch's `topk` over a vocabulary wakes its threads, which then wait where the next forward runs.
"""

from __future__ import annotations

import math
from array import array

import torch
from torch import Tensor

from ...core import law
from .compiled import Kernels, loaded

Best = list[tuple[int, float]]


def best_of(scores: Tensor, k: int) -> list[Best]:
    """The k best tokens of every row of scores, each with its weight among them, best first."""
    native, k = _native(scores), min(k, scores.shape[1])
    if native is None:  # one by one: all at once would wake the threads
        return [law.best_of(row[None], k)[0] for row in scores]
    tokens, values = _best(native, scores, k)
    rows = [(tokens[at : at + k], values[at : at + k]) for at in range(0, len(tokens), k)]
    return [
        _weighed(ids, found) if ids[0] >= 0 else law.best_of(row[None], k)[0]
        for row, (ids, found) in zip(scores, rows, strict=True)
    ]


def likeliest(scores: Tensor, k: int) -> list[Best] | None:
    """The k best tokens of every row with their probabilities, best first; None if the kernels cannot tell."""
    native, rows, k = _native(scores), len(scores), min(k, scores.shape[1])
    if native is None:
        return None
    tokens, values = _best(native, scores, k)
    if -1 in tokens:
        return None
    most, totals = values[::k], array("d", bytes(8 * rows))
    native.sums(scores.data_ptr(), rows, scores.shape[1], most.buffer_info()[0], totals.buffer_info()[0])
    return [
        [(tokens[at + i], math.exp(values[at + i] - values[at]) / totals[at // k]) for i in range(k)]
        for at in range(0, rows * k, k)
    ]


def _native(scores: Tensor) -> Kernels | None:
    fits = scores.is_cpu and scores.dtype == torch.float32 and scores.is_contiguous() and scores.shape[1] > 0
    return loaded() if fits else None


def _best(native: Kernels, scores: Tensor, k: int) -> tuple[array[int], array[float]]:
    rows, size = scores.shape
    tokens, values = array("i", bytes(4 * rows * k)), array("f", bytes(4 * rows * k))
    native.best(scores.data_ptr(), rows, size, k, values.buffer_info()[0], tokens.buffer_info()[0])
    return tokens, values


def _weighed(tokens: array[int], values: array[float]) -> Best:
    weights = [math.exp(value - values[0]) for value in values]
    total = sum(weights)
    return [(token, weight / total) for token, weight in zip(tokens, weights, strict=True)]
