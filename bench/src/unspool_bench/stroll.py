"""Random texts under a constraint, without a model: wander for some tokens, then make for an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import torch
from torch import Tensor

from unspool.rules.constrain import Constraint
from unspool.rules.constrain.closing import FREE
from unspool.rules.constrain.form import FormVocabulary

END, QUOTE = 256, 2
Masked = Callable[[Callable[[], Tensor]], Tensor]
"""Asks for a mask, and may time it."""


@dataclass(frozen=True)
class Stroll:
    """A text of `tokens`, which is finished, or was cut, or stands where nothing may follow (`stuck`)."""

    tokens: tuple[int, ...]
    finished: bool
    stuck: bool = False


class Terrain:
    """What each token begins with, and how near it brings a JSON text to its end."""

    def __init__(self, words: FormVocabulary) -> None:
        pieces = [words.piece(token) for token in range(words.size)]
        self.first = torch.tensor([piece[0] if piece else END for piece in pieces])
        self.by_first = [(self.first == byte).nonzero().flatten() for byte in range(END + 1)]
        self.rank = torch.tensor([0 if t in words.eos else _rank(piece) for t, piece in enumerate(pieces)])
        self.quotes = (self.rank == QUOTE).nonzero().flatten()

    def onwards(self, mask: Tensor, random: Random) -> Tensor:
        """The allowed tokens that begin with one of the bytes that may follow."""
        if self._free(mask):  # nearly any byte will do, so it is not worth while to look which
            while True:
                own = self.by_first[random.randrange(END)]
                if len(among := own[mask[own]]):
                    return among
        allowed = mask.nonzero().flatten()
        kind = self.first[allowed]
        kinds = sorted(set(kind.tolist()))
        return allowed[kind == kinds[random.randrange(len(kinds))]] if len(kinds) else allowed

    def homewards(self, mask: Tensor) -> Tensor:
        """The allowed tokens after which the text ends soonest."""
        if self._free(mask) and len(among := self.quotes[mask[self.quotes]]):
            return among  # inside a string it is the quote that closes
        allowed = mask.nonzero().flatten()
        kind = self.rank[allowed]
        return allowed[kind == kind.min()] if len(allowed) else allowed

    def _free(self, mask: Tensor) -> bool:
        return int(mask.count_nonzero()) > FREE * len(mask)


@lru_cache(maxsize=2)
def terrain_of(words: FormVocabulary) -> Terrain:
    """The terrain of a vocabulary."""
    return Terrain(words)


def stroll(
    constraint: Constraint, words: FormVocabulary, wander: int, most: int, random: Random, masked: Masked
) -> Stroll:
    """A text of at most `most` tokens.

    For `wander` tokens the next one is drawn evenly over the bytes that may follow, and then over the tokens that begin
    with that byte; from then on it is one of those that end soonest.
    """
    terrain, state = terrain_of(words), constraint.start()
    tokens: list[int] = []
    while len(tokens) < most:
        mask = masked(state.mask)
        among = terrain.onwards(mask, random) if len(tokens) < wander else terrain.homewards(mask)
        if not len(among):
            return Stroll(tuple(tokens), False, True)
        token = int(among[random.randrange(len(among))])
        if token in words.eos:
            return Stroll(tuple(tokens), True)
        tokens.append(token)
        state = state.step(token)
    return Stroll(tuple(tokens), False)


def _rank(piece: bytes) -> int:
    """How soon a text may end after this, less is sooner: what closes is first, what opens late, blanks last."""
    text = piece.strip()
    if not text:
        return 9
    if not text.strip(b"}]"):
        return 1
    if text in (b'"', b",", b":"):
        return QUOTE if text == b'"' else 3
    if len(piece) == 1 and piece.isdigit():
        return 4
    if piece.isascii() and piece.isalpha():
        return 5
    return {b"[": 7, b"{": 8}.get(text, 6)
