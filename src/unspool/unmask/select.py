"""What chooses the holes to fill next."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from ..asks import Field
from ..canvas import Canvas
from ..chance import Chance


class Select(Protocol):
    """A choice of holes, at least one, given their laws."""

    def __call__(self, field: Field, canvas: Canvas, chance: Chance) -> Collection[int]:
        """The holes to fill now."""
        ...
