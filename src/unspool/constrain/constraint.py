"""What a constraint is: a condition on texts, told prefix by prefix, and the warp that makes a decoder keep to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ..law import Law
from ..warp.warp import Warp


class State(Protocol):
    """What a constraint knows of a text so far. It never changes: a step gives another one, so that forks are free."""

    def step(self, token: int) -> State:
        """The state after one more token; after one that is not allowed, a state that allows none."""
        ...

    def mask(self) -> Tensor:
        """Which tokens may follow, bool [vocab] on the CPU; an end-of-text token only where the text may end."""
        ...

    def allows(self, token: int) -> bool:
        """True if this token may follow; cheaper than the mask."""
        ...

    def forced(self) -> tuple[int, ...]:
        """Tokens that must follow in this very spelling, as far as that is known; () if there is a choice."""
        ...

    def complete(self) -> bool:
        """True if the text may end here."""
        ...


class Constraint(Protocol):
    """A condition on the text that follows the prompt."""

    def start(self) -> State:
        """The state before the first token."""
        ...


@dataclass(frozen=True, eq=False)
class Constrained(Warp):
    """The law given that the next token leaves the constraint a way to be met: local masking.

    Every text that comes out meets the constraint; how likely each is differs from the model's own law given that it is
    met, because what a token makes impossible later is not weighed.
    """

    constraint: Constraint

    def start(self, text: Sequence[int]) -> Any:
        """The constraint's own state; the prompt is not bound by it."""
        return self.constraint.start()

    def step(self, state: Any, token: int) -> Any:
        """The constraint's state after one more token."""
        return state.step(token)

    def __call__(self, state: Any, law: Law) -> Law:
        """The law given that the token is allowed."""
        return law.only(state.mask().to(law.scores.device))
