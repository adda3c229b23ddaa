"""Prohibitions: tokens that may not come next, always, for now, or after what was just said.

A prohibition may leave nothing: then the law is empty, and says so when it is asked for a token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..law import NEVER, Law, Point
from ..option import expect, whole
from .warp import Warp


class Banned(NamedTuple):
    """The tokens that would complete something forbidden at a place of a canvas, by what stands on both sides of it."""

    tokens: frozenset[int]


@dataclass(frozen=True)
class Forbid(Warp):
    """Never give any of these tokens. Cost: one copy of the scores, however many tokens are forbidden."""

    tokens: Collection[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", frozenset(_ids("a token to forbid", self.tokens)))

    @cached_property
    def _index(self) -> Tensor:
        return torch.tensor(sorted(self.tokens), dtype=torch.int64)

    def __call__(self, state: None, law: Law) -> Law:
        """The law without these tokens."""
        if isinstance(law, Point) and law.best not in self.tokens:
            return law
        known = self._index[: int((self._index < law.size).sum())]  # they are sorted
        return Law(law.scores.index_fill(0, known.to(law.scores.device), NEVER))


@dataclass(frozen=True)
class MinTokens(Warp):
    """Forbid the tokens that would end the text until `n` tokens were generated; the prompt does not count."""

    n: int
    stop_tokens: Collection[int]

    def __post_init__(self) -> None:
        expect(whole(self.n, 0), "min_tokens", self.n, "a whole number from 0 on")
        object.__setattr__(self, "stop_tokens", frozenset(_ids("a stop token", self.stop_tokens)))

    def start(self, text: Sequence[int]) -> int:
        """Nothing generated yet."""
        return 0

    def step(self, state: int, token: int) -> int:
        """One token more, up to n."""
        return min(state + 1, self.n)

    def beside(self, tokens: Sequence[int], prompt: int, place: int) -> int:
        """How many tokens a text has that would end here: by its position, whether or not those are known yet."""
        return min(place - prompt, self.n)

    def __call__(self, state: int, law: Law) -> Law:
        """The law without an end while the text is too short."""
        return law if state >= self.n else without(law, self.stop_tokens)


class NgramState(NamedTuple):
    """The last n − 1 tokens of a text, and what followed each n − 1 tokens of it."""

    last: tuple[int, ...]
    after: Mapping[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class NoRepeatNgram(Warp):
    """Forbid every token that would complete an n-gram the text already has, prompt included.

    Paper: 1705.04304. Cost: one look-up; a step copies the table of n-grams, without their contents.
    """

    n: int

    def __post_init__(self) -> None:
        expect(whole(self.n, 1), "no_repeat_ngram_size", self.n, "a whole number from 1 on")

    def start(self, text: Sequence[int]) -> NgramState:
        """The n-grams of the prompt."""
        after: dict[tuple[int, ...], tuple[int, ...]] = {}
        for i in range(len(text) - self.n + 1):
            *head, token = text[i : i + self.n]
            after[tuple(head)] = _with(after.get(tuple(head), ()), token)
        return NgramState(_last(text, self.n - 1), after)

    def step(self, state: NgramState, token: int) -> NgramState:
        """The one n-gram that ends here, added."""
        last, after = state
        if len(last) == self.n - 1:
            after = {**after, last: _with(after.get(last, ()), token)}
        return NgramState(_last((*last, token), self.n - 1), after)

    def beside(self, tokens: Sequence[int], prompt: int, place: int) -> Banned:
        """Every token that would make two n-grams of the canvas the same."""
        n = self.n
        known = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
        grams = [gram for i, gram in enumerate(known) if not i <= place < i + n and min(gram) >= 0]
        banned = set[int]()
        covering = range(max(0, place - n + 1), min(place, len(tokens) - n) + 1)
        for start in covering:
            at = place - start
            banned |= {gram[at] for gram in grams if _same_but(gram, known[start], at)}
        for near in {x for x in tokens[max(0, place - n + 1) : place + n] if x >= 0} - banned:  # with one another
            row = [*tokens[:place], near, *tokens[place + 1 :]]
            own = [gram for i in covering if min(gram := tuple(row[i : i + n])) >= 0]
            if len(set(own)) < len(own):
                banned.add(near)
        return Banned(frozenset(banned))

    def __call__(self, state: NgramState | Banned, law: Law) -> Law:
        """The law without repeated n-grams."""
        return without(law, state.tokens if isinstance(state, Banned) else state.after.get(state.last, ()))


@dataclass(frozen=True)
class BadWords(Warp):
    """Forbid the last token of every given sequence wherever the text, prompt included, ends in the tokens before it.

    What is forbidden is this spelling in tokens: other tokens with the same letters may still write the word.
    Cost: one comparison per sequence.
    """

    sequences: Collection[Sequence[int]]

    def __post_init__(self) -> None:
        sequences = tuple(tuple(_ids("a token of bad_words", words)) for words in self.sequences)
        for words in sequences:
            expect(bool(words), "a sequence of bad_words", words, "at least one token")
        object.__setattr__(self, "sequences", sequences)

    @cached_property
    def _reach(self) -> int:
        return max((len(words) for words in self.sequences), default=1) - 1

    def start(self, text: Sequence[int]) -> tuple[int, ...]:
        """The end of the prompt, as far back as a sequence may reach."""
        return _last(text, self._reach)

    def step(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        """The end of the text after one more token."""
        return _last((*state, token), self._reach)

    def beside(self, tokens: Sequence[int], prompt: int, place: int) -> Banned:
        """Every token that is all that a sequence lacks at this place."""
        starts = ((words, at) for words in self.sequences for at in range(len(words)))
        fits = ((words, at, tuple(tokens[place - at : place - at + len(words)])) for words, at in starts if at <= place)
        return Banned(frozenset(words[at] for words, at, there in fits if _same_but(tuple(words), there, at)))

    def __call__(self, state: tuple[int, ...] | Banned, law: Law) -> Law:
        """The law without the ends of sequences that have begun."""
        if isinstance(state, Banned):
            return without(law, state.tokens)
        return without(law, {last for *head, last in self.sequences if _last(state, len(head)) == tuple(head)})


def without(law: Law, tokens: Collection[int]) -> Law:
    """The law without these tokens, which may be few, none, or unknown to it; a point law stays one unless hit."""
    if isinstance(law, Point) and law.best not in tokens:
        return law
    known = [x for x in tokens if x < law.size]
    return law.without(*known) if known else law


def _ids(name: str, given: Iterable[int]) -> list[int]:
    tokens = list(given)
    for token in tokens:
        expect(whole(token, 0), name, token, "a whole number from 0 on")
    return tokens


def _last(text: Sequence[int], n: int) -> tuple[int, ...]:
    """The last n tokens, or all there are."""
    return tuple(text[max(0, len(text) - n) :])


def _same_but(one: tuple[int, ...], other: tuple[int, ...], at: int) -> bool:
    """True if two rows of one length are the same everywhere but at one place."""
    return len(one) == len(other) and one[:at] == other[:at] and one[at + 1 :] == other[at + 1 :]


def _with(tokens: tuple[int, ...], token: int) -> tuple[int, ...]:
    return tokens if token in tokens else (*tokens, token)
