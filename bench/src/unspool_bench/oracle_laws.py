"""Laws of answers whose conditionals are known: a list of answers, a permutation, an even number of ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random

import torch
from torch import Tensor

from unspool.core.canvas import HOLE

from .oracle import Tokens


@dataclass(frozen=True)
class Listed:
    """One of some answers, each with its mass: p(yᵢ = x | known) ∝ the mass of those that fit and have x at i.

    Cost: answers × places per look, whatever the vocabulary is.
    """

    vocab: int
    answers: Mapping[Tokens, float]

    def __post_init__(self) -> None:
        if {*map(len, self.answers)} != {self.size} or self.size == 0:
            raise ValueError("expected answers of one length, at least 1")

    @property
    def size(self) -> int:
        """The length of every answer."""
        return len(next(iter(self.answers), ()))

    def mass(self, answer: Tokens) -> float:
        """The probability of an answer, 0 if it is not listed."""
        return self.answers.get(answer, 0.0) / math.fsum(self.answers.values())

    def given(self, known: Tokens) -> Tensor | None:
        """The shares of the answers that fit."""
        seen = torch.tensor(known)
        fits = ((self._table == seen) | (seen == HOLE)).all(1)
        weights = torch.where(fits, self._masses, 0.0)
        total = weights.sum()
        if total == 0:
            return None
        shares = torch.zeros(len(known), self.vocab, dtype=torch.float64)
        return shares.scatter_add_(1, self._table.T, (weights / total).expand(len(known), -1))

    def draw(self, random: Random) -> Tokens:
        """One of the list."""
        return random.choices(list(self.answers), list(self.answers.values()))[0]

    @cached_property
    def _table(self) -> Tensor:
        return torch.tensor(list(self.answers))

    @cached_property
    def _masses(self) -> Tensor:
        return torch.tensor(list(self.answers.values()), dtype=torch.float64)


@dataclass(frozen=True)
class Shuffled:
    """A uniform permutation of different items: every hole is uniform over the items that are left."""

    vocab: int
    items: Tokens

    def __post_init__(self) -> None:
        if not self.items or len({*self.items}) < len(self.items):
            raise ValueError(f"expected different items, at least one; got {self.items}")

    @property
    def size(self) -> int:
        """One place per item."""
        return len(self.items)

    def mass(self, answer: Tokens) -> float:
        """1/n! for a permutation."""
        return 1 / math.factorial(self.size) if sorted(answer) == sorted(self.items) else 0.0

    def given(self, known: Tokens) -> Tensor | None:
        """Uniform over what is left, at every hole."""
        used = [x for x in known if x != HOLE]
        if len({*used}) < len(used) or not {*used} <= {*self.items}:
            return None
        rest = [x for x in self.items if x not in used]
        return _rows(self.vocab, known, {x: 1 / len(rest) for x in rest})

    def draw(self, random: Random) -> Tokens:
        """A permutation."""
        return tuple(random.sample(self.items, self.size))


@dataclass(frozen=True)
class EvenParity:
    """Fair bits with an even number of ones: every hole is fair, until one is left, which is certain."""

    vocab: int
    size: int
    zero: int
    one: int

    def mass(self, answer: Tokens) -> float:
        """2^(1−n) if the number of ones is even."""
        good = len(answer) == self.size and {*answer} <= {self.zero, self.one} and answer.count(self.one) % 2 == 0
        return 2.0 ** (1 - self.size) if good else 0.0

    def given(self, known: Tokens) -> Tensor | None:
        """One half each, or the bit that makes it even."""
        holes, odd = known.count(HOLE), known.count(self.one) % 2
        if not {*known} <= {self.zero, self.one, HOLE} or (holes == 0 and odd):
            return None
        if holes == 1:
            return _rows(self.vocab, known, {self.one if odd else self.zero: 1.0})
        return _rows(self.vocab, known, {self.zero: 0.5, self.one: 0.5})

    def draw(self, random: Random) -> Tokens:
        """Fair bits, and the one that makes them even."""
        bits = [random.getrandbits(1) for _ in range(self.size - 1)]
        return tuple(self.one if bit else self.zero for bit in (*bits, sum(bits) % 2))


def _rows(vocab: int, known: Tokens, hole: Mapping[int, float]) -> Tensor:
    """The same law at every hole, and what is known everywhere else."""
    rows = torch.zeros(len(known), vocab, dtype=torch.float64)
    for place, token in enumerate(known):
        for x, p in (hole if token == HOLE else {token: 1.0}).items():
            rows[place, x] = p
    return rows
