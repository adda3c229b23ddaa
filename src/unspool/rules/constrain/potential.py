"""Potentials: how much a text is worth, beside how likely it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from ...core.errors import BadRequest
from ...core.stop import Stop

T = TypeVar("T")
Worth: TypeAlias = Callable[[tuple[int, ...]], float]
"""The log-weight of the tokens written so far; −∞ forbids them."""


def nothing(tokens: tuple[int, ...]) -> float:
    """Every text is worth the same."""
    return 0.0


class UnboundPotential(Protocol):
    """Says which texts are wanted, once it is known how they read and where they end."""

    def over(self, stop: Stop) -> Potential:
        """The potential of texts that end where this stop says."""


@dataclass(frozen=True)
class Potential:
    """Texts are wanted in proportion to p(text)·exp(complete(text)).

    `prefix` is a guess of what an unfinished text will be worth. It steers who is gone on with and is taken back before
    the end, so it may be wrong.
    """

    complete: Worth = nothing
    prefix: Worth = nothing

    def over(self, stop: Stop) -> Potential:
        """The potential of texts that end where this stop says: the same for all."""
        return self

    def whole(self, tokens: tuple[int, ...]) -> float:
        """What a finished text is worth."""
        return weighed(self.complete, "the potential's complete", tokens)

    def part(self, tokens: tuple[int, ...]) -> float:
        """What an unfinished text is thought to be worth."""
        return weighed(self.prefix, "the potential's prefix", tokens)


def weighed(worth: Worth, name: str, tokens: tuple[int, ...]) -> float:
    """What a function says of some tokens, or an error that names it and shows which tokens it failed on."""
    return told(worth, tokens, name, f"the tokens {tokens}")


def told(function: Callable[[T], float], of: T, name: str, shown: str) -> float:
    """The number that a user's function gives, -inf being one; else an error that names it and what it failed on."""
    expected = "expected a number, -inf for what is worthless or forbidden"
    try:
        given = function(of)
    except Exception as error:
        raise BadRequest(f"{name} raised {type(error).__name__}: {error}, on {shown}; {expected}") from error
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = math.nan
    if math.isnan(value) or value == math.inf:
        raise BadRequest(f"{name} gave {given!r} for {shown}; {expected}")
    return value
