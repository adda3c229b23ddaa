"""Token healing: texts that begin with given bytes, however tokens split them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from .constraint import Constraint, State, dead, mask_of
from .form import FormVocabulary


@dataclass(frozen=True, eq=False)
class Begun:
    """Texts that begin with some bytes; what follows these meets another constraint, if there is one.

    A prompt that ends inside a word was cut into tokens as if the word ended there, and what a model expects after such
    tokens is not how the word goes on. So the last tokens are taken back (`taken_back`), and the text has to begin with
    their bytes: a token may be a part of them, or have them and more. The first token's law is the model's after the
    shortened prompt, given that: masked as under any constraint, so that every claim holds as it does there.

    Where a token goes beyond the bytes, the other constraint reads what it has more as tokens of its own.
    Known from guidance. Cost: a look at the tokens that begin with the bytes.
    """

    begin: bytes
    then: Constraint | None
    words: FormVocabulary

    def start(self) -> State:
        return _Begins(self, self.begin) if self.begin else self.free

    @cached_property
    def free(self) -> State:
        """The state behind the bytes."""
        return AnyText(self.words.size) if self.then is None else self.then.start()


@dataclass(frozen=True)
class _Begins:
    of: Begun
    left: bytes

    def step(self, token: int) -> State:
        piece = self.of.words.piece(token)
        if piece and self.left.startswith(piece):
            rest = self.left[len(piece) :]
            return _Begins(self.of, rest) if rest else self.of.free
        return self._behind(piece[len(self.left) :]) if piece.startswith(self.left) else dead(self.of.words)

    def _behind(self, more: bytes) -> State:
        """The other constraint's state after what a token has beyond the bytes."""
        state, words = self.of.free, self.of.words
        if self.of.then is None:
            return state
        known = _known(words)
        while more:
            size = next((size for size in range(len(more), 0, -1) if more[:size] in known), 0)
            if not size or not state.allows(known[more[:size]]):
                return dead(words)
            state, more = state.step(known[more[:size]]), more[size:]
        return state

    def mask(self) -> Tensor:
        return mask_of(self.of.words.size, tuple(token for token in self._near() if self.allows(token)))

    def allows(self, token: int) -> bool:
        piece = self.of.words.piece(token)
        if not piece or not (self.left.startswith(piece) or piece.startswith(self.left)):
            return False
        return self.of.then is None or len(piece) <= len(self.left) or _goes_on(self._behind(piece[len(self.left) :]))

    def forced(self) -> tuple[int, ...]:
        return ()

    def wants(self) -> Sequence[bytes]:
        return [self.left]

    def complete(self) -> bool:
        return False

    def _near(self) -> list[int]:
        """The tokens that are parts of the bytes, and those that begin with them."""
        known, (pieces, tokens) = _known(self.of.words), _sorted(self.of.words)
        parts = [known[part] for n in range(1, len(self.left)) if (part := self.left[:n]) in known]
        return parts + tokens[bisect_left(pieces, self.left) : bisect_right(pieces, self.left + b"\xff" * 64)]


@dataclass(frozen=True)
class AnyText:
    """Anything may follow."""

    size: int

    def step(self, token: int) -> State:
        return self

    def mask(self) -> Tensor:
        return torch.ones(self.size, dtype=torch.bool)

    def allows(self, token: int) -> bool:
        return True

    def forced(self) -> tuple[int, ...]:
        return ()

    def complete(self) -> bool:
        return True


def taken_back(tokens: Sequence[int], words: FormVocabulary) -> bytes:
    """The bytes of the most last tokens that are together the beginning of a longer token; b"" if there are none.

    Control tokens are never taken back, and the first token of a prompt is not.
    """
    pieces, _ = _sorted(words)
    found = run = b""
    longest = max(map(len, pieces))
    for token in reversed(tokens[1:]):
        piece = words.piece(token)
        if not piece or len(run) + len(piece) >= longest:
            break
        run = piece + run
        after = bisect_right(pieces, run)
        if after < len(pieces) and pieces[after].startswith(run):
            found = run
    return found


def _goes_on(state: State) -> bool:
    """Whether a text can go on from here, or end."""
    return state.complete() or bool(state.mask().any())


@lru_cache(maxsize=4)
def _known(words: FormVocabulary) -> dict[bytes, int]:
    return {words.piece(token): token for token in reversed(range(words.size)) if token not in words.eos}


@lru_cache(maxsize=4)
def _sorted(words: FormVocabulary) -> tuple[list[bytes], list[int]]:
    """Every piece that spells something, in order, and its token."""
    listed = sorted((words.piece(token), token) for token in range(words.size) if token not in words.eos)
    spelt = [(piece, token) for piece, token in listed if piece]
    return [piece for piece, _ in spelt], [token for _, token in spelt]
