"""Recipes of samplers that draw texts under a constraint."""

from __future__ import annotations

from typing import Annotated

from ..core.claim import Method
from ..core.option import BUDGET, Range
from ..rules import constrain


def asap(tries: Annotated[int, Range(1, 1024)] = 64, rows: Annotated[int, BUDGET] = 0) -> Method:
    """ASAp with a memory of its own; the samples of one call share it."""
    return constrain.Asap(tries=tries, rows=rows)


def awrs() -> Method:
    """AWRS for the request's constraint, token by token."""
    return constrain.Awrs()


def cars(tries: Annotated[int, Range(1, 1024)] = 256, rows: Annotated[int, BUDGET] = 0) -> Method:
    """CARS with a memory of its own; the samples of one call share it."""
    return constrain.Cars(tries=tries, rows=rows)
