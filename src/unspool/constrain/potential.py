"""Potentials: how much a text is worth, beside how likely it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import BadRequest

Worth: TypeAlias = Callable[[tuple[int, ...]], float]
"""The log-weight of the tokens written so far; −∞ forbids them."""


def nothing(tokens: tuple[int, ...]) -> float:
    """Every text is worth the same."""
    return 0.0


@dataclass(frozen=True)
class Potential:
    """Texts are wanted in proportion to p(text)·exp(complete(text)).

    `prefix` is a guess of what an unfinished text will be worth. It steers who is gone on with and is taken back before
    the end, so it may be wrong.
    """

    complete: Worth = nothing
    prefix: Worth = nothing

    def whole(self, tokens: tuple[int, ...]) -> float:
        """What a finished text is worth."""
        return _usable(self.complete(tokens), "complete", tokens)

    def part(self, tokens: tuple[int, ...]) -> float:
        """What an unfinished text is thought to be worth."""
        return _usable(self.prefix(tokens), "prefix", tokens)


def _usable(value: float, name: str, tokens: tuple[int, ...]) -> float:
    if math.isnan(value) or value == math.inf:
        raise BadRequest(
            f"the potential's {name} gave {value} for {tokens}; expected a log-weight: a number, or -inf to forbid"
        )
    return value
