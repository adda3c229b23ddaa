"""The alphabet of the list tasks: 32 items, 16 numbers, and a token that names each task."""

from __future__ import annotations

ITEMS = 32
NUMBER = ITEMS  # the token of 0; those of 1, 2, … follow
NUMBERS = 16
TASK = NUMBER + NUMBERS  # the token of the first task
VOCAB = 64

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEF"


def spelt(token: int) -> str:
    """A token as people read it: a letter for an item, digits for a number, § for a task."""
    if token < NUMBER:
        return _LETTERS[token]
    return f"#{token - NUMBER}" if token < TASK else f"§{token - TASK}"
