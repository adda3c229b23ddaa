"""A case: what is asked in one measurement, and how its answers are marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Mark = Callable[[str], "bool | None"]
"""Whether an answer is right; None where that cannot be told."""


@dataclass(frozen=True)
class BenchCase:
    """One or several texts to be written together, each of at most `most` tokens.

    `family` is the row of the table that it counts for. Prompts are messages of a user, or `raw` texts to go on with.
    """

    name: str
    family: str
    prompts: tuple[str, ...]
    most: int
    stops: tuple[str, ...] = ()
    mark: Mark | None = None
    raw: bool = False


class Suite(Protocol):
    """A set of cases by name."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        ...

    @property
    def source(self) -> str:
        """Where its cases come from, for the record."""
        ...

    def cases(self) -> Sequence[BenchCase]:
        """All of them, in the order in which they are measured."""
        ...
