"""How texts of different length are compared, and when a search has seen enough of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from ...core.option import expect, real


class LengthNorm(Protocol):
    """What log p is divided by to make the score of a text."""

    def __call__(self, tokens: float) -> float:
        """The divisor for a text of so many tokens."""


@dataclass(frozen=True)
class Power:
    """tokensᵅ, as transformers has it: 0 compares log p itself, 1 its mean; more favours longer texts."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        expect(real(self.alpha), "alpha", self.alpha, "a finite number; 0 leaves lengths alone, 1 is the mean")

    def __call__(self, tokens: float) -> float:
        return float(tokens**self.alpha)


@dataclass(frozen=True)
class Gnmt:
    """((5 + tokens) / 6)ᵅ, as Google's translation system had it (Wu et al. 2016); usual is 0.6 to 0.7."""

    alpha: float = 0.65

    def __post_init__(self) -> None:
        expect(real(self.alpha), "alpha", self.alpha, "a finite number; 0 leaves lengths alone, usual is 0.65")

    def __call__(self, tokens: float) -> float:
        return float(((5 + tokens) / 6) ** self.alpha)


class SearchOutlook(NamedTuple):
    """Where a search stands once it has as many finished texts as it was asked for.

    `best` is the log p of the best unfinished text, of `tokens` out of at most `most`; `worst` the lowest score among
    the finished.
    """

    best: float
    tokens: int
    most: float
    worst: float
    length: LengthNorm


Patience: TypeAlias = Callable[[SearchOutlook], bool]
"""Whether the search goes on."""


def enough(outlook: SearchOutlook) -> bool:
    """Stop as soon as there are enough finished texts (transformers' early_stopping=True)."""
    return False


def likely(outlook: SearchOutlook) -> bool:
    """Go on while the best unfinished text would make it if it ended now (transformers' early_stopping=False)."""
    return outlook.best / outlook.length(outlook.tokens) > outlook.worst


def sure(outlook: SearchOutlook) -> bool:
    """Go on while any unfinished text could still make it, at whatever length (transformers' "never")."""
    # log p only falls and is negative, so the largest divisor gives the highest score that is still possible
    divisor = max(outlook.length(outlook.tokens), outlook.length(outlook.most))
    return outlook.best / divisor > outlook.worst


PATIENCE: dict[str, Patience] = {"enough": enough, "likely": likely, "sure": sure}
LENGTH: dict[str, type[Power] | type[Gnmt]] = {"power": Power, "gnmt": Gnmt}
