"""What a parameter may be: one refusal for all that lies outside its range, so that every message reads alike."""

from __future__ import annotations

import math
import sys

from ..errors import BadRequest


def expect(fits: bool, name: str, given: object, expected: str, param: str | None = None) -> None:
    """Refuse a parameter unless it fits, saying what was given and what was expected.

    `param` is what a request calls it, where its name is a phrase.
    """
    if not fits:
        raise BadRequest(f"{name} is {given!r}; expected {expected}.", param)


def real(given: object, low: float = -math.inf, high: float = math.inf) -> bool:
    """True for a finite number in [low, high]; False for NaN, booleans and everything that is no number."""
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return False
    return abs(given) <= sys.float_info.max and low <= given <= high  # not isfinite, which fails at huge integers


def level(given: object) -> bool:
    """True for a number that others can be compared with: infinities may be, NaN never is above or below anything."""
    return real(given) or given in (math.inf, -math.inf)


def whole(given: object, low: int, high: float = math.inf) -> bool:
    """True for an integer in [low, high]."""
    return isinstance(given, int) and not isinstance(given, bool) and low <= given <= high
