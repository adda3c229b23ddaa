"""Free text, unless a trigger stands in it: from there on, a form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ...core.option import expect
from .constraint import Constraint, State, dead, over
from .form import Form, FormVocabulary
from .until_form import PAST, Waiting


@dataclass(frozen=True)
class Unless(Form):
    """Any text without the trigger, or one up to its first occurrence followed by a text of `form`.

    A token that would write the trigger and something more is not allowed, since what comes behind it belongs to the
    form.
    """

    trigger: str
    form: Form

    def __post_init__(self) -> None:
        expect(isinstance(self.trigger, str) and self.trigger != "", "unless", self.trigger, "a text that is not empty")

    def fit(self, words: FormVocabulary) -> Constraint:
        return TriggerState(watch(self.trigger.encode(), words), self.form.fit(words))


class TriggerWatch:
    """A trigger over a vocabulary, with the masks of free text worked out. Cost: 10 ms a byte of the trigger, once."""

    def __init__(self, trigger: bytes, words: FormVocabulary) -> None:
        self.words, self.waiting = words, Waiting(trigger, words)
        pieces = [words.piece(token) for token in range(words.size)]
        self.masks = [self._mask(trigger, have, pieces) for have in range(len(trigger))]

    def _mask(self, trigger: bytes, have: int, pieces: list[bytes]) -> Tensor:
        """What may follow a text that ends in so much of the trigger: all but what writes past it."""
        begun, mask = trigger[:have], torch.ones(len(pieces), dtype=torch.bool)
        for token, piece in enumerate(pieces):
            _, found, past = (begun + piece).partition(trigger)
            if found and past:
                mask[token] = False
        mask[list(self.words.eos)] = True
        return mask


@lru_cache(maxsize=8)
def watch(trigger: bytes, words: FormVocabulary) -> TriggerWatch:
    """A trigger over a vocabulary."""
    return TriggerWatch(trigger, words)


@dataclass(frozen=True, eq=False)
class TriggerState:
    """Free text that becomes a text of `behind` at the trigger."""

    watch: TriggerWatch
    behind: Constraint

    def start(self) -> State:
        return _Free(self, 0)


@dataclass(frozen=True, eq=False)
class _Free:
    whole: TriggerState
    have: int

    def step(self, token: int) -> State:
        words = self.whole.watch.words
        if token in words.eos:
            return over(words)
        have = self.whole.watch.waiting.read(self.have, words.piece(token))
        if have == PAST:
            return dead(words)
        complete = have == len(self.whole.watch.waiting.trigger)
        return self.whole.behind.start() if complete else _Free(self.whole, have)

    def mask(self) -> Tensor:
        return self.whole.watch.masks[self.have]

    def allows(self, token: int) -> bool:
        return bool(self.whole.watch.masks[self.have][token])

    def forced(self) -> tuple[int, ...]:
        return ()

    def complete(self) -> bool:
        return True


def unless(trigger: str, form: Form) -> Unless:
    """Free texts, bound to a form from the first occurrence of a trigger on."""
    return Unless(trigger, form)
