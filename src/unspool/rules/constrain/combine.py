"""Constraints made of constraints: both, either, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from operator import or_

from torch import Tensor

from .closing import wanted
from .constraint import Constraint, State, dead, mask_of, over
from .form import Form, FormVocabulary


@dataclass(frozen=True)
class AllOf(Form):
    """Texts that meet two forms.

    The mask is the intersection, so every text that ends meets both. A prefix that each alone could complete may still
    be one that they cannot complete together; then no token is left, which is an error and never a wrong text.
    """

    first: Form
    second: Form

    def fit(self, words: FormVocabulary) -> Constraint:
        return And(self.first.fit(words), self.second.fit(words))


@dataclass(frozen=True)
class AnyOf(Form):
    """Texts that meet at least one of two forms; whichever a text can still become is kept in view."""

    first: Form
    second: Form

    def fit(self, words: FormVocabulary) -> Constraint:
        return Or((self.first.fit(words), self.second.fit(words)), words)


@dataclass(frozen=True)
class Followed(Form):
    """A text of the first form, then one of the second; no token straddles the seam."""

    first: Form
    second: Form

    def fit(self, words: FormVocabulary) -> Constraint:
        return Then(self.first.fit(words), self.second.fit(words), words)


@dataclass(frozen=True)
class And:
    """The product of two constraints."""

    first: Constraint
    second: Constraint

    def start(self) -> State:
        return _And(self.first.start(), self.second.start())


@dataclass(frozen=True)
class _And:
    first: State
    second: State

    def step(self, token: int) -> State:
        return _And(self.first.step(token), self.second.step(token))

    def mask(self) -> Tensor:
        return self.first.mask() & self.second.mask()

    def allows(self, token: int) -> bool:
        return self.first.allows(token) and self.second.allows(token)

    def forced(self) -> tuple[int, ...]:
        for one, other in ((self.first, self.second), (self.second, self.first)):
            if tokens := one.forced():
                states = _along(other, tokens)
                pairs = takewhile(lambda pair: pair[1].allows(pair[0]), zip(tokens, states, strict=True))
                return tuple(token for token, _ in pairs)
        return ()

    def wants(self) -> list[bytes]:
        return wanted(self.first, self.second)

    def complete(self) -> bool:
        return self.first.complete() and self.second.complete()


@dataclass(frozen=True)
class Or:
    """The union of constraints."""

    parts: tuple[Constraint, ...]
    words: FormVocabulary

    def start(self) -> State:
        return _Or(tuple(part.start() for part in self.parts), self.words)


@dataclass(frozen=True)
class _Or:
    live: tuple[State, ...]
    words: FormVocabulary

    def step(self, token: int) -> State:
        live = tuple(state.step(token) for state in self.live if state.allows(token))
        return _Or(live, self.words) if live else dead(self.words)

    def mask(self) -> Tensor:
        return reduce(or_, (state.mask() for state in self.live))

    def allows(self, token: int) -> bool:
        return any(state.allows(token) for state in self.live)

    def forced(self) -> tuple[int, ...]:
        each = [state.forced() for state in self.live]
        return tuple(tokens[0] for tokens in takewhile(lambda t: len(set(t)) == 1, zip(*each, strict=False)))

    def wants(self) -> list[bytes]:
        return wanted(*self.live)

    def complete(self) -> bool:
        return any(state.complete() for state in self.live)


@dataclass(frozen=True)
class Then:
    """The concatenation of two constraints, at borders of tokens."""

    first: Constraint
    second: Constraint
    words: FormVocabulary

    def start(self) -> State:
        return _then(self.first.start(), (), self)


@dataclass(frozen=True)
class _Then:
    first: State | None  # None once the text can no longer belong to the first
    seconds: tuple[State, ...]  # one for every place where the second may have begun
    whole: Then

    def step(self, token: int) -> State:
        words = self.whole.words
        if token in words.eos:
            return over(words) if self.complete() else dead(words)
        first = self.first.step(token) if self.first is not None and self.first.allows(token) else None
        seconds = tuple(state.step(token) for state in self.seconds if state.allows(token))
        return _then(first, seconds, self.whole) if first is not None or seconds else dead(words)

    def mask(self) -> Tensor:
        words = self.whole.words
        mask = mask_of(words.size, ())
        if self.first is not None:
            mask |= self.first.mask()
            mask[list(words.eos)] = False  # the first alone is no end
        return reduce(or_, (state.mask() for state in self.seconds), mask)

    def allows(self, token: int) -> bool:
        if token in self.whole.words.eos:
            return self.complete()
        first = self.first is not None and self.first.allows(token)
        return first or any(state.allows(token) for state in self.seconds)

    def forced(self) -> tuple[int, ...]:
        states = [self.first] if self.first is not None else []
        states += self.seconds
        eos = self.whole.words.eos
        return tuple(takewhile(lambda token: token not in eos, states[0].forced())) if len(states) == 1 else ()

    def wants(self) -> list[bytes]:
        return wanted(*(() if self.first is None else (self.first,)), *self.seconds)

    def complete(self) -> bool:
        return any(state.complete() for state in self.seconds)


def _then(first: State | None, seconds: tuple[State, ...], whole: Then) -> _Then:
    if first is not None and first.complete():
        seconds = (*seconds, whole.second.start())
    return _Then(first, seconds, whole)


def _along(state: State, tokens: tuple[int, ...]) -> list[State]:
    states = [state]
    for token in tokens[:-1]:
        states.append(states[-1].step(token))
    return states
