"""What copying would have gained: the rounds that a text, written token by token, would have taken with drafts."""

from __future__ import annotations

from collections.abc import Sequence


class BigramCopies:
    """Where every two tokens of a text stood last, and what followed them there."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, int], int] = {}
        self._read = 2  # places up to which that is known

    def rounds(self, tokens: Sequence[int], first: int) -> int:
        """In how many rounds the tokens from `first` on would have come, each with a copy as far as it was right."""
        rounds, at, end = 0, max(first, 2), len(tokens)
        while at < end:
            self._know(tokens, at)
            copied = self._after.get((tokens[at - 2], tokens[at - 1]), end)
            self._after[tokens[at - 2], tokens[at - 1]] = at
            while at < end and copied < at and tokens[copied] == tokens[at]:
                at, copied = at + 1, copied + 1
            at, rounds = at + 1, rounds + 1  # and the token that every round adds
        return max(rounds, 1)

    def _know(self, tokens: Sequence[int], end: int) -> None:
        for place in range(self._read, end):
            self._after[tokens[place - 2], tokens[place - 1]] = place
        self._read = max(self._read, end)
