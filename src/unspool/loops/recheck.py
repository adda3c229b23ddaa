"""A second opinion on the holes that a look has chosen, before anything stands in them."""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Any, Protocol, TypeAlias

from ..core.asks import Ask
from .denoise_state import DenoiseState

Checking: TypeAlias = Generator[Ask, Any, Collection[int]]


class Recheck(Protocol):
    """A second opinion on what was chosen: it may look again, change tokens, and choose otherwise."""

    def __call__(self, sight: DenoiseState, chosen: Collection[int]) -> Checking:
        """The holes to fill after all."""
