"""The warps of the cases, as decoders are given them; `plainly` states each of them once more, and apart."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..core.warp import (
    BadWords,
    Frequency,
    LogitBias,
    MinP,
    MinTokens,
    NoRepeatNgram,
    Presence,
    Repetition,
    Same,
    Temperature,
    TopK,
    TopP,
    Warp,
)
from ..rules.constrain.constraint import Constrained, State, mask_of


@dataclass(frozen=True)
class Brackets:
    """Token 0 opens and token 1 closes, never more than two deep; other tokens may stand inside brackets only.

    There is always a way on, but often only one: outside of all brackets 0 is forced.
    """

    size: int
    depth: int = 0

    def start(self) -> State:
        return self

    def step(self, token: int) -> State:
        if not self.allows(token):
            return Nowhere(self.size)
        return Brackets(self.size, self.depth + {0: 1, 1: -1}.get(token, 0))

    def mask(self) -> Tensor:
        return mask_of(self.size, tuple(token for token in range(self.size) if self.allows(token)))

    def allows(self, token: int) -> bool:
        return self.depth < 2 if token == 0 else self.depth > 0

    def forced(self) -> tuple[int, ...]:
        return (0,) if self.depth == 0 else (1,) if self.depth == 2 and self.size == 2 else ()

    def complete(self) -> bool:
        return self.depth == 0


@dataclass(frozen=True)
class DeadEnd:
    """Everything may be written, but after two of token 1 in a row nothing can follow: masks look one token ahead.

    Plain decoding fails there, and so must every method, as often and no oftener.
    """

    size: int
    ones: int = 0

    def start(self) -> State:
        return self

    def step(self, token: int) -> State:
        if not self.allows(token):
            return Nowhere(self.size)
        return DeadEnd(self.size, self.ones + 1 if token == 1 else 0)

    def mask(self) -> Tensor:
        return mask_of(self.size, tuple(range(self.size)) if self.ones < 2 else ())

    def allows(self, token: int) -> bool:
        return self.ones < 2

    def forced(self) -> tuple[int, ...]:
        return ()

    def complete(self) -> bool:
        return True


@dataclass(frozen=True)
class Nowhere:
    """After a token that was not allowed."""

    size: int

    def step(self, token: int) -> State:
        return self

    def mask(self) -> Tensor:
        return mask_of(self.size, ())

    def allows(self, token: int) -> bool:
        return False

    def forced(self) -> tuple[int, ...]:
        return ()

    def complete(self) -> bool:
        return False


PLAIN = "none"
NUCLEUS = Temperature(1.5) | TopP(0.7)
BRACKETS, DEAD_END = "brackets", "dead end"

FREE: dict[str, Warp] = {
    PLAIN: Same(),
    "temperature 0.6": Temperature(0.6),
    "top-k 2": TopK(2),
    "temperature 1.5, top-p 0.7": NUCLEUS,
    "min-p 0.45": MinP(0.45),
    "repetition 1.6": Repetition(1.6),
    "frequency 1": Frequency(1.0),
    "presence 0.8": Presence(0.8),
    "bias": LogitBias({0: -0.5, 1: 0.7}),
    "no bigram twice": NoRepeatNgram(2),
    "never 1 after 0": BadWords(((0, 1),)),
    "no 1 among the first two": MinTokens(2, (1,)),
    "greedy": Temperature(0.0),
}
"""The warps that do not need to know the vocabulary, by what they are called in a case."""

BOUND_BY = {
    BRACKETS: Same(),
    f"{BRACKETS}, greedy": Temperature(0.0),
    f"{BRACKETS}, temperature 1.5, top-p 0.7": NUCLEUS,
    DEAD_END: Same(),
    f"{DEAD_END}, greedy": Temperature(0.0),
    f"{DEAD_END}, temperature 1.5, top-p 0.7": NUCLEUS,
}
"""Those that begin with a constraint, and what follows it, in the order of a request's settings."""

WARPS = (*FREE, *BOUND_BY)
EMPTYING = DEAD_END, "no bigram twice"  # may leave no token at all after a text
FORBIDDING = BRACKETS, "never 1 after 0", "no 1 among the first two"  # may, where the model gives no other a chance


def warp_of(name: str, size: int) -> Warp:
    """The warp of this name over a vocabulary of this size."""
    if name in FREE:
        return FREE[name]
    constraint = Brackets(size) if name.startswith(BRACKETS) else DeadEnd(size)
    return Constrained(constraint) | BOUND_BY[name]
