"""How a canvas is looked at: once, or guided, credited, softened, or with keys that were computed before."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol, TypeAlias

from ..core.asks import Ask, Look
from ..core.canvas import Canvas, Field

Viewing: TypeAlias = Generator[Ask, Any, Field]


class View(Protocol):
    """A way to get the laws at places of a canvas; a plain function, or a `Rule`."""

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        """Ask for the laws at these places."""


def look(canvas: Canvas, places: Sequence[int]) -> Viewing:
    """One look, with everything computed anew."""
    field: Field = yield Look(canvas, tuple(places))
    return field
