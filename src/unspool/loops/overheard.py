"""To hear what a search has found while it goes on: methods that tell it have a field `watch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ..core.claim import Method


def overheard(made: Method, listen: Callable[[Sequence[Any]], None]) -> Method:
    """The method with one more to whom it tells what it has found, if it tells that anybody (a field `watch`)."""
    if not is_dataclass(made) or isinstance(made, type) or "watch" not in {field.name for field in fields(made)}:
        return made
    watch = getattr(made, "watch")  # noqa: B009  (only some methods have one)

    def both(found: Sequence[Any]) -> None:
        watch(found)
        listen(found)

    return replace(made, watch=both)
