"""A law over few tokens: what n-gram tables know of the next one."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from ...core.law import NEVER, Law


class Few(Law):
    """The law proportional to a few positive weights; every other token is impossible.

    Cost: of the few tokens, not of the vocabulary. `like` tells the vocabulary and device, where they are known.
    """

    def __init__(self, weights: Mapping[int, float], like: Law | None = None) -> None:
        self.weights = {x: weights[x] for x in sorted(weights) if weights[x] > 0}
        self._like, self._total = like, sum(self.weights.values())

    @property
    def scores(self) -> Tensor:
        """Log-weights over the whole vocabulary, made only if somebody insists on seeing them."""
        if self._like is None:
            raise TypeError("this law does not know its vocabulary; use spread(like)")
        return self.spread(self._like).log()

    @property
    def best(self) -> int:
        """The most probable token; of several, the one with the lowest id."""
        return max(self.weights, key=self.weights.__getitem__)

    def spread(self, like: Law) -> Tensor:
        """All probabilities, over the vocabulary and on the device of `like`."""
        p = torch.zeros_like(like.scores)
        p[list(self.weights)] = torch.tensor(list(self.weights.values()), dtype=p.dtype, device=p.device) / self._total
        return p

    def logprob(self, token: int) -> float:
        weight = self.weights.get(token, 0.0)
        return math.log(weight / self._total) if weight > 0 else NEVER

    @cached_property
    def steps(self) -> list[tuple[int, float]]:
        """The few tokens, each with the upper end of its interval of [0, 1)."""
        ends = list(accumulate(self.weights.values()))
        return [(x, end / ends[-1]) for x, end in zip(self.weights, ends, strict=True)]

    def invert(self, uniform: float) -> int:
        at = bisect_right(self.steps, uniform, key=lambda step: step[1])
        return self.steps[min(at, len(self.steps) - 1)][0]

    def without(self, *tokens: int) -> Law:
        return Few({x: w for x, w in self.weights.items() if x not in tokens}, self._like)

    def is_empty(self) -> bool:
        return not self.weights

    def __repr__(self) -> str:
        shown = ", ".join(f"{x}: {w / self._total:.3g}" for x, w in self.weights.items())
        return f"Few({{{shown}}})"
