"""Settling: which guess stood at which position in which round, and so when each token became final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class SettledAt(NamedTuple):
    """The first round that began with the token in its place for good, and the round that made it certain, from 0.

    A token in place before its predecessors were certain did not need them all. If `stood` is `certain + 1`, nobody had
    guessed it.
    """

    stood: int
    certain: int


@dataclass
class Settling:
    """The guesses of every round of one request, each with the number of tokens that were certain before it."""

    rounds: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    def note(self, done: int, guesses: tuple[int, ...]) -> None:
        """Take note of the guesses that the round after `done` tokens begins with."""
        if self.rounds and self.rounds[-1][0] == done:
            self.rounds.pop()
        self.rounds.append((done, guesses))

    def settled(self, tokens: Sequence[int]) -> list[SettledAt]:
        """For each token of the finished text, the round in which it stood for good and the one that made it certain.

        This is the dependency picture of Santilli et al. 2023 (DDGviz), as data.
        """
        return [self._settled(position, token) for position, token in enumerate(tokens)]

    def _settled(self, position: int, token: int) -> SettledAt:
        certain = max(i for i, (done, _) in enumerate(self.rounds) if done <= position)
        stood = certain + 1
        for i in range(certain, -1, -1):
            done, guesses = self.rounds[i]
            at = position - done
            if not (at < len(guesses) and guesses[at] == token):
                break
            stood = i
        return SettledAt(stood, certain)
