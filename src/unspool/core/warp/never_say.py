"""Texts that are never written, whichever tokens would spell them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ..errors import BadRequest
from ..law import Law
from .forbid import Banned, without
from .warp import Warp

_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class SpellingState(NamedTuple):
    """The end of a text in bytes, and how far before its end a word may have begun."""

    end: bytes
    starts: tuple[int, ...]


class Pieces:
    """The tokens of a vocabulary by their bytes: which begin, end or are a text, and which contain one."""

    def __init__(self, vocabulary: Any) -> None:
        self.spelt = [vocabulary.piece(token) for token in range(vocabulary.size)]
        self._forward = sorted((piece, token) for token, piece in enumerate(self.spelt) if piece)
        self._backward = sorted((piece[::-1], token) for piece, token in self._forward)

    def beginning(self, text: bytes) -> Iterator[int]:
        """The tokens that begin with this text."""
        return self._from(self._forward, text)

    def ending(self, text: bytes) -> Iterator[int]:
        """The tokens that end with this text."""
        return self._from(self._backward, text[::-1])

    def containing(self, text: bytes) -> Iterator[int]:
        """The tokens that contain this text."""
        return (token for token, piece in enumerate(self.spelt) if text in piece)

    def _from(self, listed: list[tuple[bytes, int]], text: bytes) -> Iterator[int]:
        for n in range(bisect_left(listed, (text, -1)), len(listed)):
            piece, token = listed[n]
            if not piece.startswith(text):
                return
            yield token


_known: WeakKeyDictionary[Any, Pieces] = WeakKeyDictionary()


def pieces_of(vocabulary: Any) -> Pieces:
    """The tokens of a vocabulary by their bytes; made once."""
    if vocabulary not in _known:
        _known[vocabulary] = Pieces(vocabulary)
    return _known[vocabulary]


@dataclass(frozen=True)
class NeverSay(Warp):
    """Forbid every token that would complete one of these texts, however they are cut into tokens.

    A text that begins with a letter or a figure is only meant where a word begins: behind anything else, or with a
    token; one that ends with such is meant where a word ends, or a token does. So `cat` leaves ` category` alone, and
    `y` + `es` is `yes`. What was written before counts, the prompt too.

    Cost: a few comparisons of bytes per text, and one search of the vocabulary per text and place where it can be cut.
    """

    texts: tuple[bytes, ...]
    pieces: Pieces = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if not all(self.texts):
            raise BadRequest("a text of bad_words is empty; expected at least one character", "bad_words")

    @property
    def reach(self) -> int:
        """How many bytes before a token may belong to a text that it completes."""
        return max(map(len, self.texts), default=1) - 1

    def start(self, text: Sequence[int]) -> SpellingState:
        state = SpellingState(b"", ())
        for token in text[-self.reach - 1 :] if self.reach else ():
            state = self.step(state, token)
        return state

    def step(self, state: SpellingState, token: int) -> SpellingState:
        piece = self._piece(token)
        if not piece:
            return state
        starts = {*(far + len(piece) for far in state.starts), len(piece)}
        starts |= {len(piece) - at for at in range(1, len(piece)) if piece[at - 1] not in _LETTERS}
        end = (state.end + piece)[-self.reach :] if self.reach else b""
        return SpellingState(end, tuple(sorted(far for far in starts if far <= self.reach)))

    def beside(self, tokens: Sequence[int], prompt: int, place: int) -> Banned:
        """Every token that completes a text with what stands on both sides without a gap."""
        low, high = place, place + 1
        while low > 0 and tokens[low - 1] >= 0 and place - low <= self.reach:
            low -= 1
        while high < len(tokens) and tokens[high] >= 0 and high - place <= self.reach + 1:
            high += 1
        state = self.start(tokens[low:place])
        behind = [self._piece(token) for token in tokens[place + 1 : high]]
        banned = set(self._completing(state))
        for text in self.texts:
            banned |= self._before(state, text, behind)
        return Banned(frozenset(banned))

    def __call__(self, state: SpellingState | Banned, law: Law) -> Law:
        return without(law, state.tokens if isinstance(state, Banned) else self._completing(state))

    def _completing(self, state: SpellingState) -> frozenset[int]:
        """The tokens that complete a text after this end."""
        found = [_inside(self.pieces, text) for text in self.texts]
        for text in self.texts:
            found += [_rest(self.pieces, text[far:]) for far in _begun(state, text)]
        return frozenset().union(*found)

    def _before(self, state: SpellingState, text: bytes, behind: list[bytes]) -> set[int]:
        """The tokens after which this text ends in what stands behind them."""
        found, edges, follows = set[int](), set(accumulate(map(len, behind))), b"".join(behind)
        for size in range(1, len(text)):
            rest = text[size:]
            ends = len(rest) in edges or _ends(text, follows, len(rest))
            if not ends or not follows.startswith(rest):
                continue
            for token in self.pieces.ending(text[:size]):  # it begins in the token
                piece = self.pieces.spelt[token]
                if len(piece) == size or not _starts_word(text) or piece[-size - 1] not in _LETTERS:
                    found.add(token)
            for far in _begun(state, text):  # it begins before the token, which is a part of it
                if far < size:
                    part = text[far:size]
                    found |= {t for t in self.pieces.beginning(part) if len(self.pieces.spelt[t]) == len(part)}
        return found

    def _piece(self, token: int) -> bytes:
        return self.pieces.spelt[token] if token < len(self.pieces.spelt) else b""


def _starts_word(text: bytes) -> bool:
    return text[0] in _LETTERS


def _begun(state: SpellingState, text: bytes) -> list[int]:
    """How many bytes of a text may already stand at an end."""
    far = state.starts if _starts_word(text) else range(1, len(state.end) + 1)
    return [n for n in far if n < len(text) and state.end.endswith(text[:n])]


def _ends(text: bytes, piece: bytes, at: int) -> bool:
    """Whether a text that ends at this byte of a piece ends as a word there, or with the piece."""
    return text[-1] not in _LETTERS or at == len(piece) or (at < len(piece) and not _continues(piece[at]))


def _continues(byte: int) -> bool:
    return byte in _LETTERS or byte >= 0x80


@lru_cache(maxsize=4096)
def _inside(pieces: Pieces, text: bytes) -> frozenset[int]:
    """The tokens that have all of a text in them."""
    found = set[int]()
    for token in pieces.containing(text):
        piece, at = pieces.spelt[token], -1
        while (at := piece.find(text, at + 1)) >= 0:
            begins = at == 0 or not _starts_word(text) or piece[at - 1] not in _LETTERS
            if begins and _ends(text, piece, at + len(text)):
                found.add(token)
    return frozenset(found)


@lru_cache(maxsize=16384)
def _rest(pieces: Pieces, rest: bytes) -> frozenset[int]:
    """The tokens that begin with the rest of a text, and end it."""
    return frozenset(t for t in pieces.beginning(rest) if _ends(rest, pieces.spelt[t], len(rest)))
