"""A constraint with a last word: the text may end only if a check of the whole of it agrees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from .constraint import Constraint, State, dead, over
from .form import FormVocabulary


@dataclass(frozen=True)
class CheckedConstraint:
    """`constraint`, where an end counts only if `check` agrees with the finished text.

    Where the constraint leaves nothing but an end and the check says no, no token is left: an error, never a text that
    fails the check.
    """

    constraint: Constraint
    check: Callable[[str], bool]
    words: FormVocabulary

    def start(self) -> State:
        return _Checked(self.constraint.start(), b"", self)


@dataclass(frozen=True)
class _Checked:
    state: State
    data: bytes
    whole: CheckedConstraint

    def step(self, token: int) -> State:
        words = self.whole.words
        if token in words.eos:
            return over(words) if self.complete() else dead(words)
        return _Checked(self.state.step(token), self.data + words.piece(token), self.whole)

    def mask(self) -> Tensor:
        mask = self.state.mask()
        if self.state.complete() and not self.complete():
            mask = mask.clone()  # the other's is not to be changed
            mask[list(self.whole.words.eos)] = False
        return mask

    def allows(self, token: int) -> bool:
        return self.complete() if token in self.whole.words.eos else self.state.allows(token)

    def forced(self) -> tuple[int, ...]:
        return () if self.state.complete() else self.state.forced()

    def complete(self) -> bool:
        return self._agreed

    @cached_property
    def _agreed(self) -> bool:
        return self.state.complete() and self.whole.check(self.data.decode("utf-8", "replace"))
