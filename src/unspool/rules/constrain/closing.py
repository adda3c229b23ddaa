"""The way to an end: a few tokens after which a text may stop, found by a search that prefers what closes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from functools import lru_cache
from itertools import count, groupby, islice
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ...core.asks import GiveWay
from .constraint import State
from .trial import breathe

EACH = 2  # tokens of one kind that are tried at one place
WANTED = 4  # texts that are waited for and tried at one place
LONGEST = 32  # bytes of a token that may begin such a text
FREE = 0.25  # the share of the vocabulary from which on a place counts as free text
_CLOSERS, _OPENERS, _QUOTES, _SEPARATORS = b"}])>", b"{[(<", b"\"'`", b",;:"


class Closing:
    """Finds short completions of a prefix.

    A best-first search over tokens that masks allow, a few of each kind: least surprise first, where the surprise of a
    path is the sum of the ranks of its tokens in an order in which brackets close before values begin, and in free text
    quotes come first. Forced tokens cost nothing. What a state itself says that it waits for (`WantsTexts`) comes
    before all else. That it finds none is no proof that there is none.

    Cost: one mask per token on the path, at least.
    """

    def __init__(self, size: int, ends: Collection[int], piece: Callable[[int], bytes] | None) -> None:
        self._size, self._ends, self._piece = size, ends, piece

    def find(self, state: State, room: int, exactly: bool = False, effort: int = 8) -> tuple[int, ...] | None:
        """At most `room` tokens after which the text may end, or exactly so many; None if none were found.

        The search gives up after about `effort` prefixes for every token that there is room for.
        """
        steps = self.search(state, room, exactly, effort)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            found: tuple[int, ...] | None = end.value
            return found

    def search(
        self, state: State, room: int, exactly: bool = False, effort: int = 8
    ) -> Generator[GiveWay, None, tuple[int, ...] | None]:
        """The same, which gives way before every prefix."""
        ticket = count()  # states cannot be compared
        queue: list[tuple[int, int, int, tuple[int, ...], State]] = [(0, 0, next(ticket), (), state)]
        for _ in range(16 + effort * room):
            breathe()
            yield GiveWay()
            if not queue:
                return None
            surprise, _, _, path, at = heapq.heappop(queue)
            if at.complete() and (len(path) == room or not exactly):
                return path
            for rank, more in enumerate(self._ways(at, room - len(path))):
                after = at
                for token in more:
                    after = after.step(token)
                grown = (*path, *more)
                heapq.heappush(queue, (surprise + rank, -len(grown), next(ticket), grown, after))
        return None

    def _ways(self, state: State, left: int) -> Sequence[tuple[int, ...]]:
        """What may follow, best first: all that is forced, or single tokens."""
        forced = state.forced()
        if forced:
            return [forced] if len(forced) <= left and forced[0] not in self._ends else []
        if left <= 0:
            return []
        mask = state.mask()
        few, ranks, kinds = _orders(self._size, self._piece)
        if int(mask.sum()) > FREE * self._size:
            near = [kind[mask[kind]][:EACH].tolist() for kind in few]
        else:
            allowed = mask.nonzero().flatten()
            listed: list[int] = allowed[ranks[allowed].argsort()].tolist()
            near = [list(islice(kind, EACH)) for _, kind in groupby(listed, key=kinds.__getitem__)]
        listed = [*self._waited_for(state, mask), *(token for kind in near for token in kind)]
        return [(token,) for token in dict.fromkeys(listed) if token not in self._ends]

    def _waited_for(self, state: State, mask: Tensor) -> Iterator[int]:
        """The longest tokens that begin what a state waits for, the shortest of that first."""
        for text in sorted(wanted(state), key=len)[:WANTED]:
            known = _by_piece(self._size, self._piece)
            begins = (known.get(text[:size]) for size in range(min(len(text), LONGEST), 0, -1))
            yield from islice((token for token in begins if token is not None and mask[token]), EACH)


@runtime_checkable
class WantsTexts(Protocol):
    """A state that knows texts which would lead it on: a word that is still missing, a trigger that is waited for."""

    def wants(self) -> Sequence[bytes]:
        """What may be written from here on to come nearer to an end; one of them, or one after the other."""


def wanted(*states: State) -> list[bytes]:
    """What these states wait for, those that can tell."""
    return [text for state in states if isinstance(state, WantsTexts) for text in state.wants() if text]


@lru_cache(maxsize=2)
def _by_piece(size: int, piece: Callable[[int], bytes] | None) -> dict[bytes, int]:
    """The first token that spells each piece."""
    return {} if piece is None else {piece(token): token for token in reversed(range(size))}


@lru_cache(maxsize=2)  # it takes longer than the search, and a process has one vocabulary or two
def _orders(size: int, piece: Callable[[int], bytes] | None) -> tuple[list[Tensor], Tensor, list[int]]:
    """For free text the first tokens of each kind; for structure the rank of every token, and its kind."""
    spelt = [b"" if piece is None else piece(token) for token in range(size)]
    free = [_in_free(piece) if piece else (9, 0) for piece in spelt]
    bound = [_in_bound(piece) if piece else (9, 0) for piece in spelt]
    grouped = groupby(sorted(range(size), key=free.__getitem__), key=lambda token: free[token][0])
    few = [torch.tensor(list(islice(tokens, 256))) for _, tokens in grouped]
    order = torch.tensor(sorted(range(size), key=bound.__getitem__))
    return few, order.argsort(), [kind for kind, _ in bound]


def _in_free(piece: bytes) -> tuple[int, int]:
    """Double quotes with what they close, words, other quotes, line breaks, the rest."""
    if not piece.strip(_QUOTES + _CLOSERS):
        return 0 if piece[0] in b'"' else 2, -len(piece)
    return (1, -min(len(piece), 6)) if piece.isalpha() else (3, len(piece)) if piece[0] in b"\n" else (4, len(piece))


def _in_bound(piece: bytes) -> tuple[int, int]:
    """Closers, brackets with nothing in them, separators, figures, quotes, words, the rest, openers, blanks.

    Separators stand before figures, or a number that has to be followed by something would never end.
    """
    if piece.isspace():
        return 8, len(piece)
    if not piece.strip(_CLOSERS):
        return 0, -len(piece)
    if len(piece.translate(None, _OPENERS)) < len(piece):
        return 1 if not piece.strip(_OPENERS + _CLOSERS) and piece[-1] in _CLOSERS else 7, len(piece)
    if not piece.strip(_SEPARATORS):
        return 2, len(piece)
    if piece.isdigit():
        return 3, len(piece)
    if not piece.strip(_QUOTES):
        return 4, -len(piece)
    return 5 if piece.isalpha() else 6, -len(piece)
