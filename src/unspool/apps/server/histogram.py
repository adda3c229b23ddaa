"""Histograms of seconds, as Prometheus reads them."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Histogram:
    """How many values lay at or below each bound. Cost: a search among the bounds for every value."""

    def __init__(self, name: str, told: str) -> None:
        self.name, self.told = name, told
        self.total = 0.0
        self._counts = [0] * (len(BOUNDS) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, or as many of them."""
        self._counts[bisect_left(BOUNDS, value)] += times
        self.total += value * times

    def lines(self) -> list[str]:
        """The histogram in Prometheus' text format."""
        bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        counts = list(accumulate(self._counts))
        buckets = [f'{self.name}_bucket{{le="{b}"}} {count}' for b, count in zip(bounds, counts, strict=True)]
        head = [f"# HELP {self.name} {self.told}", f"# TYPE {self.name} histogram"]
        return [*head, *buckets, f"{self.name}_sum {self.total:.9g}", f"{self.name}_count {counts[-1]}"]
