"""A form that must come to its end in time: the last tokens of a text are spent on closing it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from ...core.errors import BadRequest
from ...core.option import expect, whole
from .closing import FREE, Closing
from .constraint import Constraint, State, dead, mask_of
from .form import Form, FormVocabulary

SLACK = 8  # spare tokens at which a text must be closed
CAREFUL = 40  # spare tokens from which on nothing new is begun: one bracket can make the way to an end much longer


@dataclass(frozen=True)
class Within(Form):
    """A text of a form that ends within `tokens` tokens, the one that ends it included.

    While there is room the form alone decides. A search finds a short way to an end. When that leaves few tokens to
    spare, words may still go on where any text may stand, but else the way is followed: no bracket is opened any more,
    no list goes on; at last strings are closed too. So a text is not cut off; what suffers is what the model would
    still have liked to say. A search cannot foresee everything: a text whose way suddenly grows by more than there is
    room for ends in an error, never in a wrong text.

    Cost: about a mask for each token of the way, at a few places first and at every token of free text near the end.
    """

    form: Form
    tokens: int

    def __post_init__(self) -> None:
        expect(whole(self.tokens, 1), "within", self.tokens, "a whole number of tokens from 1 on")

    def fit(self, words: FormVocabulary) -> Constraint:
        found = in_time(self.form.fit(words), self.tokens, self.tokens, words)
        if found is None:
            raise BadRequest(
                f"no text of this form was found that ends within {self.tokens} tokens. Allow more, or a simpler form"
            )
        return found


def in_time(fitted: Constraint, most: int, reach: int, words: FormVocabulary) -> InTime | None:
    """The constraint, ended within `most` tokens; None if no text of at most `reach` tokens is found that meets it.

    The way to an end is looked for when at most `reach` tokens are left, so that no search is longer than that.
    """
    closing = Closing(words.size, words.eos, words.piece)
    if closing.find(fitted.start(), reach - 1) is None:
        return None
    return InTime(fitted, most, reach, min(SLACK, most // 8), min(CAREFUL, most // 3), closing, words)


@dataclass(frozen=True, eq=False)
class InTime:
    """A constraint whose texts have at most `most` tokens."""

    constraint: Constraint
    most: int
    reach: int
    slack: int
    careful: int
    closing: Closing
    words: FormVocabulary

    def start(self) -> State:
        return _UntilShort(self.constraint.start(), self.most, min(self.most, self.reach), self)


@dataclass(frozen=True, eq=False)
class _UntilShort:
    """A text that goes where its constraint lets it, until a look at the way to an end says that time is short."""

    state: State
    left: int
    look: int  # how many tokens are left when it has to be looked
    whole: InTime

    def step(self, token: int) -> State:
        if self._short is not None or token in self.whole.words.eos:
            return (self._short or self.state).step(token)
        look = min(self.look, self.left - max(1, (self._spare - self.whole.careful) // 2))
        return _UntilShort(self.state.step(token), self.left - 1, look, self.whole)

    def mask(self) -> Tensor:
        return (self._short or self.state).mask()

    def allows(self, token: int) -> bool:
        return (self._short or self.state).allows(token)

    def forced(self) -> tuple[int, ...]:
        return (self._short or self.state).forced()

    def complete(self) -> bool:
        return (self._short or self.state).complete()

    @cached_property
    def _way(self) -> tuple[int, ...] | None:
        return self.whole.closing.find(self.state, self.left - 1) if self.left > 0 else None

    @property
    def _spare(self) -> int:
        """How many tokens the way to an end leaves over; as many as matter if that was not looked at."""
        return 0 if self.left > self.look or self._way is None else self.left - 1 - len(self._way)

    @cached_property
    def _short(self) -> State | None:
        """The state of a text that has little time, None while it has enough."""
        if self.left > self.look:
            return None
        if self._way is None:
            return dead(self.whole.words)
        return _Short(self.state, self._way, self.left, self.whole) if self._spare <= self.whole.careful else None


@dataclass(frozen=True, eq=False)
class _Short:
    """A text that follows its way to an end, but for words in free text while there are tokens to spare."""

    state: State
    way: tuple[int, ...]
    left: int
    whole: InTime

    def step(self, token: int) -> State:
        if token in self._next:
            after = self.state.step(token)
            return _Short(after, self.way[1:], self.left - 1, self.whole) if self.way else after
        if not self.allows(token):
            return dead(self.whole.words)
        return _UntilShort(self.state.step(token), self.left - 1, self.left - 1, self.whole)

    def mask(self) -> Tensor:
        mask = mask_of(self.whole.words.size, tuple(self._next))
        return mask if self._talk is None else mask | self._talk

    def allows(self, token: int) -> bool:
        return token in self._next or (self._talk is not None and bool(self._talk[token]))

    def forced(self) -> tuple[int, ...]:
        if self._talk is not None:
            return ()
        return self.state.forced() or (tuple(self._next) if len(self._next) == 1 else ())

    def complete(self) -> bool:
        return not self.way

    @property
    def _next(self) -> frozenset[int]:
        return frozenset(self.way[:1]) or self.whole.words.eos

    @cached_property
    def _talk(self) -> Tensor | None:
        """The words that may go on here; None if it is no place for them, or too late."""
        if self.left - 1 - len(self.way) <= self.whole.slack:
            return None
        mask = self.state.mask()
        return mask & _words(self.whole.words) if int(mask.sum()) > FREE * len(mask) else None


@lru_cache(maxsize=2)
def _words(words: FormVocabulary) -> Tensor:
    """The tokens that are nothing but letters and figures, with or without a blank before them."""
    return torch.tensor([words.piece(token).removeprefix(b" ").isalnum() for token in range(words.size)])
