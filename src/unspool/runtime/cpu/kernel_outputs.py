"""What a forward of the kernels has written, as laws, states and likeliest tokens: tensors only where somebody looks.

A call into PyTorch takes 40 µs when its code has been driven out of the caches, as a forward over all weights does; its
`topk` over a vocabulary wakes its threads, which then wait where the next forward runs.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from ...core import law
from ...core.law import Law
from ..engine.contracts import LAST
from .compiled import Kernels, loaded

Best = list[tuple[int, float]]


class LentMemory:
    """Memory at an address, which is given back when nobody holds this any more."""

    def __init__(self, at: int, give: Callable[[int], None]) -> None:
        self._at, self._give = at, give

    def __del__(self) -> None:
        self._give(self._at)


class KernelOutputs:
    """Logits [rows, vocab] at an address, and behind them what left the last norm, [rows, dim], if it was wanted.

    The memory is given back when nobody holds this, or a tensor made of it, any more. Tensors hold the memory and not
    this, which holds them: Python's collector cannot see through a tensor, and would never free such a circle.
    """

    def __init__(self, at: int, rows: int, vocab: int, dim: int, give: Callable[[int], None]) -> None:
        self._at, self._rows, self._vocab, self._dim = at, rows, vocab, dim
        self._memory = LentMemory(at, give)

    @property
    def vocab(self) -> int:
        """Numbers of a row of logits."""
        return self._vocab

    @cached_property
    def logits(self) -> Tensor:
        """All logits."""
        return self._tensor(0, self._vocab)

    @cached_property
    def states(self) -> Tensor:
        """What left the last norm."""
        return self._tensor(self._rows * self._vocab, self._dim)

    def state_at(self, row: int) -> int:
        """Where the state of a row begins."""
        return self._at + 4 * (self._rows * self._vocab + row * self._dim)

    def _tensor(self, first: int, width: int) -> Tensor:
        memory = (ctypes.c_float * (self._rows * width)).from_address(self._at + 4 * first)
        memory.owner = self._memory  # type: ignore[attr-defined]  # held as long as the tensor is
        return torch.frombuffer(memory, dtype=torch.float32).view(self._rows, width)


class LogitRows(Protocol):
    """Logits that become a tensor when somebody looks."""

    @property
    def vocab(self) -> int:
        """Numbers of a row."""

    @property
    def logits(self) -> Tensor:
        """All of them, [rows, vocab]."""


class KernelLaw(Law):
    """The law of one row of logits, whose best token a kernel has found; −1 if it was not asked or could not tell."""

    def __init__(self, outputs: LogitRows, row: int, best: int) -> None:
        self._outputs, self._row, self._best = outputs, row, best

    @property
    def scores(self) -> Tensor:
        return self._outputs.logits[self._row]

    @property
    def size(self) -> int:
        return self._outputs.vocab

    @cached_property
    def best(self) -> int:
        """The most probable token; what no kernel has told PyTorch looks for, and says if a number is not finite."""
        if self._best >= 0:
            return self._best
        value, token = self.scores.max(0)  # one call: behind a forward each takes 10 to 40 µs
        self._refuse_unusable(float(value))
        return int(token)


class KernelStates(Mapping[int, Tensor]):
    """The hidden states of a forward by their layer: what left the last norm, [rows, dim]."""

    def __init__(self, outputs: KernelOutputs) -> None:
        self.outputs = outputs

    def __getitem__(self, layer: int) -> Tensor:
        if layer != LAST:
            raise KeyError(layer)
        return self.outputs.states

    def __contains__(self, layer: object) -> bool:
        return layer == LAST

    def __iter__(self) -> Iterator[int]:
        return iter((LAST,))

    def __len__(self) -> int:
        return 1


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


def best_at(at: int, size: int) -> int:
    """The best of so many numbers at an address; −1 if one is not finite, or no kernels are loaded that could tell."""
    native, token, value = loaded(), ctypes.c_int32(-1), ctypes.c_float()
    if native is not None:
        native.best(at, 1, size, 1, ctypes.byref(value), ctypes.byref(token))
    return token.value


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
