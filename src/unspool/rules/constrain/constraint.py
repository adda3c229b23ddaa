"""What a constraint is: a condition on texts, told prefix by prefix, and the warp that makes a decoder keep to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ...core.canvas import Binding, Canvas
from ...core.errors import EmptyLaw
from ...core.law import NEVER, Law
from ...core.stop import Stop
from ...core.warp.mask import Mask
from .. import unmask
from .bits import packed

if TYPE_CHECKING:
    from ...core.asks import Ask
    from ...loops.guard import Guard
    from .form import FormVocabulary


NOTHING_FITS = (
    "the constraint leaves no token after what was written: its parts exclude each other here, the finished text fails "
    "its check, or it can no longer end in time. Loosen it, or draw again with another seed."
)


class State(Protocol):
    """What a constraint knows of a text so far. It never changes: a step gives another one, so that forks are free."""

    def step(self, token: int) -> State:
        """The state after one more token; after one that is not allowed, a state that allows none."""

    def mask(self) -> Tensor:
        """Which tokens may follow, bool [vocab] on the CPU; an end-of-text token only where the text may end."""

    def allows(self, token: int) -> bool:
        """True if this token may follow; cheaper than the mask."""

    def forced(self) -> tuple[int, ...]:
        """Tokens that must follow in this very spelling, as far as that is known; () if there is a choice."""

    def complete(self) -> bool:
        """True if the text may end here."""


class Binds(ABC):
    """A state that applies its mask to scores itself, quicker than by booleans; other states are asked for the mask."""

    __slots__ = ()

    @abstractmethod
    def bind(self, scores: Tensor) -> Tensor:
        """The scores of what may follow, and −∞ for what may not; on a CPU."""

    @abstractmethod
    def octets(self) -> Tensor:
        """Which tokens may follow, uint8: bit i of byte j tells it of token 8·j + i."""

    @classmethod
    def step_all(cls, states: Sequence[Any], tokens: Sequence[int]) -> list[Any]:
        """Several states of this kind, each after a token that may follow it."""
        return [state.step(token) for state, token in zip(states, tokens, strict=True)]

    @classmethod
    def fill(cls, states: Sequence[Any], rows: Sequence[int], out: Tensor) -> None:
        """Put what may follow several states of this kind into these rows of a uint8 [rows, bytes]."""
        for state, row in zip(states, rows, strict=True):
            bits = state.octets()
            out[row, : len(bits)] = bits

    @classmethod
    def accept_all(cls, states: Sequence[Any], ranked: Sequence[Sequence[int]]) -> list[tuple[int, Any]]:
        """Of several states of this kind, the first ranked token that may follow, and the state after it; else −1."""
        found: list[tuple[int, Any]] = []
        for state, tokens in zip(states, ranked, strict=True):
            token = next((token for token in tokens if token >= 0 and state.allows(token)), -1)
            found.append((token, state.step(token) if token >= 0 else state))
        return found

    @abstractmethod
    def follows(self, tokens: Sequence[int]) -> int:
        """How many of these tokens may follow, one after the other; fewer, where that would take long to tell."""

    @abstractmethod
    def forced(self) -> tuple[int, ...]:
        """Tokens that must follow in this very spelling, as far as that is known; () if there is a choice."""


class Constraint(Protocol):
    """A condition on the text that follows the prompt."""

    def start(self) -> State:
        """The state before the first token."""


@runtime_checkable
class CanvasConstraint(Protocol):
    """A constraint that can be asked whether a text with holes, of one token each, can be completed."""

    def filled(self, text: Sequence[int]) -> tuple[int, ...] | None:
        """The text with its holes filled so that it meets the constraint; None if no way was found."""

    def possible(self, text: Sequence[int]) -> bool:
        """False if there is surely no way."""

    def finished(self, text: Sequence[int]) -> tuple[int, ...] | None:
        """The same, without those of the holes at its end that are not needed."""


@dataclass(frozen=True, eq=False)
class Constrained(Mask, Binding):
    """The law given that the next token leaves the constraint a way to be met: local masking.

    Every text that comes out meets the constraint; how likely each is differs from the model's own law given that it is
    met, because what a token makes impossible later is not weighed.
    """

    constraint: Constraint

    def start(self, text: Sequence[int]) -> Any:
        """The constraint's own state; the prompt is not bound by it."""
        return self.constraint.start()

    def step(self, state: Any, token: int) -> Any:
        return state.step(token)

    def __call__(self, state: Any, law: Law) -> Law:
        scores = law.scores
        if isinstance(state, Binds) and scores.device.type == "cpu":
            return Bound(state.bind(scores))
        return Bound(law.only(state.mask().to(scores.device)).scores)

    def bits(self, state: Any) -> Tensor:
        """Which tokens the constraint allows, as bits."""
        return state.octets() if isinstance(state, Binds) else packed(state.mask())

    @classmethod
    def step_all(cls, asked: Sequence[tuple[Mask, Any]], tokens: Sequence[int]) -> list[Any]:
        """Those of several texts; matchers run on all cores."""
        found: dict[int, Any] = {}
        for kind, alike in _by_kind(asked).items():
            states, given = [asked[i][1] for i in alike], [tokens[i] for i in alike]
            stepped = kind.step_all(states, given) if issubclass(kind, Binds) else map(kind.step, states, given)
            found.update(zip(alike, stepped, strict=True))
        return [found[i] for i in range(len(asked))]

    @classmethod
    def fill(cls, asked: Sequence[tuple[Mask, Any]], rows: Sequence[int], out: Tensor) -> None:
        """The bits of several texts; matchers run on all cores."""
        for kind, alike in _by_kind(asked).items():
            if issubclass(kind, Binds):
                kind.fill([asked[i][1] for i in alike], [rows[i] for i in alike], out)
            else:
                super().fill([asked[i] for i in alike], [rows[i] for i in alike], out)

    @classmethod
    def accept_all(cls, asked: Sequence[tuple[Mask, Any]], ranked: Sequence[Sequence[int]]) -> list[tuple[int, Any]]:
        """Those of several texts; no mask is computed where states know better."""
        found: dict[int, tuple[int, Any]] = {}
        for kind, alike in _by_kind(asked).items():
            given = [ranked[i] for i in alike]
            if issubclass(kind, Binds):
                told = kind.accept_all([asked[i][1] for i in alike], given)
            else:
                told = super().accept_all([asked[i] for i in alike], given)
            found.update(zip(alike, told, strict=True))
        return [found[i] for i in range(len(asked))]

    def only(self, state: Any) -> int:
        forced: tuple[int, ...] = state.forced() if isinstance(state, Binds) else ()
        return forced[0] if forced else -1

    def over(self, state: Any) -> bool:
        return isinstance(state, Still) and bool(state.tokens)

    def follows(self, state: Any, tokens: Sequence[int]) -> int:
        """How many of these tokens the constraint is known to allow."""
        return state.follows(tokens) if isinstance(state, Binds) else _count_allowed(state, tokens)

    def refusal(self) -> EmptyLaw:
        """That it is the constraint which leaves nothing."""
        return EmptyLaw(NOTHING_FITS)

    def guard(self, canvas: Canvas, stop: Stop) -> Generator[Ask, Any, Guard]:
        return unmask.Lave.of(self.constraint, canvas, stop)


class Bound(Law):
    """What a constraint leaves of a law; where that is nothing, whoever asks for a token is told why."""

    def temper(self, temperature: float) -> Law:
        return super().temper(temperature) if temperature == 0 else Bound(self.scores / temperature)

    def _refuse_unusable(self, value: float) -> None:
        if value == NEVER:
            raise EmptyLaw(NOTHING_FITS)
        super()._refuse_unusable(value)


def _by_kind(asked: Sequence[tuple[Mask, Any]]) -> dict[Any, list[int]]:
    """The numbers of those whose states are of one kind."""
    kinds: dict[Any, list[int]] = {}
    for i, (_, state) in enumerate(asked):
        kinds.setdefault(type(state), []).append(i)
    return kinds


def _count_allowed(state: State, tokens: Sequence[int]) -> int:
    for count, token in enumerate(tokens):
        if not state.allows(token):
            return count
        state = state.step(token)
    return len(tokens)


@dataclass(frozen=True)
class Still(Binds):
    """After the end: only `tokens` may follow, and change nothing. Without any, the text can no longer be met."""

    size: int
    tokens: frozenset[int] = frozenset()

    def step(self, token: int) -> Still:
        return self if token in self.tokens else Still(self.size)

    def mask(self) -> Tensor:
        return mask_of(self.size, self.tokens)

    def bind(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(~self.mask(), NEVER)

    def octets(self) -> Tensor:
        return _octets(self)

    def follows(self, tokens: Sequence[int]) -> int:
        return _count_allowed(self, tokens)

    def allows(self, token: int) -> bool:
        return token in self.tokens

    def forced(self) -> tuple[int, ...]:
        return tuple(self.tokens) if len(self.tokens) == 1 else ()

    def complete(self) -> bool:
        return bool(self.tokens)


@lru_cache(maxsize=16)
def _octets(still: Still) -> Tensor:
    return packed(still.mask())


def over(words: FormVocabulary) -> Still:
    """The state of a text that has ended."""
    return Still(words.size, words.eos)


def dead(words: FormVocabulary) -> Still:
    """The state of a text that breaks its constraint."""
    return Still(words.size)


def mask_of(size: int, tokens: frozenset[int] | tuple[int, ...]) -> Tensor:
    """The mask that allows these tokens and no other."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(tokens)] = True
    return mask
