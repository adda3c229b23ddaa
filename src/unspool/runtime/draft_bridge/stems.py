"""Two vocabularies as strings: with which outer token a text begins, of which some inner tokens are written."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

MOST = 4096  # strings whose continuations are remembered


class Reach(NamedTuple):
    """What the next inner token makes of a string.

    `inner[i]` settles on `outer[i]`, a longer outer token than the string alone had; after any of `inside` a still
    longer one may come.
    """

    inner: Tensor
    outer: Tensor
    inside: Tensor


class Stems:
    """The prefix tree of the outer tokens' strings, walked with inner tokens.

    `ends` are the inner control tokens that the outer vocabulary has too; they stand alone, never inside a string.
    """

    def __init__(self, outer: Sequence[bytes], inner: Sequence[bytes], ends: Mapping[int, int]) -> None:
        self._token = {piece: x for x, piece in reversed(list(enumerate(outer))) if piece}  # the first of equal ones
        self._outer = sorted(self._token)
        self._spelt = sorted((piece, x) for x, piece in enumerate(inner) if piece)
        self._inner = [piece for piece, _ in self._spelt]
        self._known, self._ends = set(self._inner), dict(ends)
        self._reach: dict[bytes, Reach] = {}

    def longest(self, string: bytes) -> int | None:
        """The longest outer token that the string begins with."""
        found = (self._token.get(string[:size]) for size in range(len(string), 0, -1))
        return next((token for token in found if token is not None), None)

    def reach(self, string: bytes) -> Reach:
        """What each next inner token makes of the string, as far as it makes anything new of it."""
        found = self._reach.get(string)
        if found is None:
            found = self._reached(string)
            if len(self._reach) >= MOST:
                self._reach.clear()
            self._reach[string] = found
        return found

    def _reached(self, string: bytes) -> Reach:
        settled: dict[int, int] = {} if string else dict(self._ends)
        inside: set[bytes] = set()
        longer = [piece for piece in _starting(self._outer, string) if len(piece) > len(string)]
        for piece in sorted(longer, key=len):  # a longer token takes from a shorter one
            rest = piece[len(string) :]
            low = bisect_left(self._inner, rest)
            for _, x in self._spelt[low : low + len(_starting(self._inner, rest))]:
                settled[x] = self._token[piece]
            inside.update(part for size in range(1, len(rest)) if (part := rest[:size]) in self._known)
        within = [x for piece, x in self._spelt if piece in inside] if inside else []
        columns = ([*settled], [*settled.values()], within)
        return Reach(*(torch.tensor(column, dtype=torch.long) for column in columns))


def _starting(pieces: list[bytes], string: bytes) -> list[bytes]:
    """Those of the sorted pieces that begin with the string."""
    body = string.rstrip(b"\xff")
    high = bisect_left(pieces, body[:-1] + bytes([body[-1] + 1])) if body else len(pieces)
    return pieces[bisect_left(pieces, string) : high]
