"""What chooses the holes to fill next, and how a rule is made ready for a vocabulary and a request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

from .sight import Sight

T = TypeVar("T")


class Unmask(Protocol):
    """A choice among the holes that were looked at: at least one of them, if there is one.

    A rule that remembers earlier looks has `begin()`, which gives a fresh one per request.
    """

    def __call__(self, sight: Sight) -> Collection[int]:
        """The holes to fill now."""
        ...


def begun(rule: T) -> T:
    """A rule with a memory of its own for one request: what its `begin()` gives, if it has one."""
    begin: Callable[[], Any] | None = getattr(rule, "begin", None)
    return rule if begin is None else begin()


def suited(rule: T, vocabulary: Any) -> T:
    """A rule that knows the tokens it works with: what its `fit(vocabulary)` gives, if it has one."""
    fit: Callable[[Any], Any] | None = getattr(rule, "fit", None)
    return rule if fit is None else fit(vocabulary)
