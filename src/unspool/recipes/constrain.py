"""Recipes of samplers that draw texts under a constraint."""

from __future__ import annotations

from ..core.claim import Method
from ..core.option import Budget, Span
from ..rules import constrain


def asap(tries: Span = 64, rows: Budget = 0) -> Method:
    """ASAp with a memory of its own; the samples of a call come one after the other, and learn from those before."""
    return constrain.Asap(tries=tries, rows=rows)


def awrs() -> Method:
    """AWRS for the request's constraint, token by token."""
    return constrain.Awrs()


def cars(tries: Span = 256, rows: Budget = 0) -> Method:
    """CARS with a memory of its own; the samples of one call share it."""
    return constrain.Cars(tries=tries, rows=rows)
