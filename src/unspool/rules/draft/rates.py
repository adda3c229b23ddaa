"""Hit rates: how often drafted tokens of a kind stood, on the text as it goes on."""

from __future__ import annotations

FADE = 0.98  # what a mark is worth when the next one is made, so that a text that changes its ways is followed


class Rate:
    """How likely a token of one kind is to stand: r = (hits + w·r') / (tries + w), with r' believed before any try.

    Old marks fade. The calibration is ours.

    Cost: three numbers per kind.
    """

    __slots__ = ("believed", "hits", "tries", "value", "weight")

    def __init__(self, believed: float, weight: float = 4.0) -> None:
        self.believed, self.weight = believed, weight
        self.hits = self.tries = 0.0
        self.value = believed

    def mark(self, hit: bool) -> None:
        """Take note that a token of this kind was tried."""
        self.hits, self.tries = FADE * self.hits + hit, FADE * self.tries + 1
        self.value = self.given(self.believed)

    def given(self, believed: float) -> float:
        """The rate, had this been believed."""
        return (self.hits + self.weight * believed) / (self.tries + self.weight)
