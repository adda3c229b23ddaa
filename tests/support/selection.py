"""Which cases of a crossing every run takes: a fair share of each row and each column. The rest is in the slow set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


def crossed(*axes: Iterable[Any], quick: int, name: Callable[[Any], str] = str) -> list[Any]:
    """All combinations of some values, for `parametrize`; one in `quick` is run every time, the others are slow.

    Which one goes round along every axis, so each value meets every `quick`-th of the others of an axis, and which of
    them differs from value to value. Of one axis alone every `quick`th value is run every time.
    """
    numbered = [list(enumerate(axis)) for axis in axes]
    return [
        pytest.param(
            *(value for _, value in chosen),
            marks=() if sum(number for number, _ in chosen) % quick == 0 else pytest.mark.slow,
            id="-".join(name(value) for _, value in chosen),
        )
        for chosen in product(*numbered)
    ]
