"""Oracles: any-order models whose conditionals are exact, because the law of the answers is known in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from unspool.core.asks import Look
from unspool.core.canvas import HOLE, Field
from unspool.core.errors import BadRequest
from unspool.runtime.engine.contracts import LookRequest

Tokens: TypeAlias = tuple[int, ...]


class Exact(Protocol):
    """A law of answers of one length, with its conditionals, in float64."""

    @property
    def size(self) -> int:
        """How many tokens an answer has."""
        ...

    def mass(self, answer: Tokens) -> float:
        """The probability of a whole answer."""
        ...

    def given(self, known: Tokens) -> Tensor | None:
        """p(token at place i | known), [size, vocab], where `known` has holes; None if no answer fits what is known."""
        ...

    def draw(self, random: Random) -> Tokens:
        """An answer."""
        ...


class Oracle:
    """An any-order model that reads a prompt, knows the law of its answers, and tells the exact conditional of it.

    p(yᵢ | x, y_S) for any filled set S. No answer may fit what a careless rule has filled; then there is no such law,
    and the oracle falls back to p(yᵢ | x), so that decoding goes on, although it has failed. It computes no rows that
    cost anything; one look counts as one row per place, as in a model that reads the whole canvas.
    """

    def __init__(self, vocab: int, read: Callable[[Tokens], Exact]) -> None:
        self.vocab = vocab
        self.read = lru_cache(maxsize=1024)(read)
        self._scores = lru_cache(maxsize=2**15)(self._told)

    def look(self, asked: Sequence[LookRequest]) -> list[Field]:
        """The conditional law of every place that is asked for."""
        return [self._field(ask.look) for ask in asked]

    def _field(self, look: Look) -> Field:
        canvas = look.canvas
        start, places = canvas.prompt, look.places
        prompt, tokens = canvas.tokens[:start], canvas.tokens[start:]
        exact = self.read(prompt)
        if len(tokens) > exact.size:
            raise BadRequest(f"the canvas has {len(tokens)} places after the prompt; its answers have {exact.size}")
        if any(place < start for place in places):
            raise BadRequest("an oracle knows the law of the answer only, and was asked about a place of the prompt")
        known = tokens + (HOLE,) * (exact.size - len(tokens))  # what was cut off is not known
        rows = []
        for n, place in enumerate(places):
            hidden = look.along[n:] if look.along else (place,)
            rows.append(self._scores(prompt, _without(known, {i - start for i in hidden}))[place - start])
        return Field.of(places, torch.stack(rows), rows=len(canvas)) if places else Field({}, rows=len(canvas))

    def _told(self, prompt: Tokens, known: Tokens) -> Tensor:
        """The log-probabilities at every place, given the prompt and what is known."""
        exact = self.read(prompt)
        told = exact.given(known)
        if told is None:
            told = exact.given((HOLE,) * exact.size)
            assert told is not None  # some answer has a probability
        return told.log()


def _without(known: Tokens, places: set[int]) -> Tokens:
    if all(known[i] == HOLE for i in places):
        return known  # the same key for all holes, so that one computation answers them all
    return tuple(HOLE if i in places else x for i, x in enumerate(known))
