"""Free text up to a trigger: reasoning first, and what must have a form behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core.option import expect
from .constraint import Constraint, State, dead, over
from .form import Form, FormVocabulary

PAST = -1  # the trigger stands inside a token and not at its end


@dataclass(frozen=True)
class Until(Form):
    """Any text that ends where the trigger first stands in it, however tokens split the trigger.

    `until("</think>").then(json_schema(…))` lets a model think freely and binds what follows. A token that would write
    the trigger and something more is not allowed, since what comes behind it belongs to another form.
    """

    trigger: str

    def __post_init__(self) -> None:
        expect(isinstance(self.trigger, str) and self.trigger != "", "until", self.trigger, "a text that is not empty")

    def fit(self, words: FormVocabulary) -> Constraint:
        return Waiting(self.trigger.encode(), words)


@dataclass(eq=False)
class Waiting:
    """An automaton over bytes that knows how much of the trigger the text ends in (Knuth, Morris and Pratt's)."""

    trigger: bytes
    words: FormVocabulary
    _masks: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        trigger, self._back = self.trigger, [0]
        for i in range(1, len(trigger)):
            k = self._back[-1]
            while k and trigger[k] != trigger[i]:
                k = self._back[k - 1]
            self._back.append(k + (trigger[k] == trigger[i]))

    def start(self) -> State:
        return Matched(self, 0)

    def read(self, have: int, data: bytes) -> int:
        """How much of the trigger stands at the end after some bytes; `PAST` if it stands before that."""
        for number, byte in enumerate(data, 1):
            while have and self.trigger[have] != byte:
                have = self._back[have - 1]
            have += self.trigger[have] == byte
            if have == len(self.trigger):
                return have if number == len(data) else PAST
        return have

    def mask(self, have: int) -> Tensor:
        """Every token that does not write past the trigger, and no end; worked out once for each `have`."""
        if have not in self._masks:
            words = self.words
            fits = [t not in words.eos and self.read(have, words.piece(t)) != PAST for t in range(words.size)]
            self._masks[have] = torch.tensor(fits, dtype=torch.bool)
        return self._masks[have]


@dataclass(frozen=True)
class Matched:
    """How many bytes of the trigger the text ends in."""

    of: Waiting
    have: int

    def step(self, token: int) -> State:
        words = self.of.words
        if not self.allows(token):
            return dead(words)
        return over(words) if token in words.eos else Matched(self.of, self.of.read(self.have, words.piece(token)))

    def mask(self) -> Tensor:
        return over(self.of.words).mask() if self.complete() else self.of.mask(self.have)

    def allows(self, token: int) -> bool:
        words = self.of.words
        if self.complete() or token in words.eos:
            return self.complete() and token in words.eos
        return self.of.read(self.have, words.piece(token)) != PAST

    def forced(self) -> tuple[int, ...]:
        return ()

    def wants(self) -> Sequence[bytes]:
        return [self.of.trigger[self.have :]]

    def complete(self) -> bool:
        return self.have == len(self.of.trigger)


def until(trigger: str) -> Until:
    """Free texts that end with the first occurrence of a trigger."""
    return Until(trigger)
