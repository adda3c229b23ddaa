"""A request's warps and its constraint, apart: for methods that weigh a constraint instead of masking by it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ..stop import Stop
from ..warp.warp import Both, Same, Warp
from .combine import And
from .constraint import Constrained, Constraint, State
from .still import mask_of


def parted(warp: Warp) -> tuple[Warp, Constraint | None]:
    """The warps without any `Constrained`, and what these demand, None if there is none.

    The law that the constraint then conditions is the one after all other warps.
    """
    if isinstance(warp, Constrained):
        return Same(), warp.constraint
    if not isinstance(warp, Both):
        return warp, None
    (first, one), (second, other) = parted(warp.first), parted(warp.second)
    if one is None and other is None:
        return warp, None
    rest = first if isinstance(second, Same) else first | second
    return rest, And(one, other) if one is not None and other is not None else one or other


def timely(constraint: Constraint | None, stop: Stop) -> State | None:
    """The state to begin with, such that where only one more token may follow, it has to be one that ends the text.

    A text that is merely cut off would be none that meets the constraint.
    """
    if constraint is None:
        return None
    ends = stop.tokens and stop.most is not None
    return (Timely(constraint, stop.tokens, stop.most or 0) if ends else constraint).start()


@dataclass(frozen=True, eq=False)
class Timely:
    """A constraint whose texts have at most `most` tokens, the last of them one of `ends`."""

    constraint: Constraint
    ends: frozenset[int]
    most: int

    def start(self) -> State:
        """The state before the first token."""
        return _Timely(self.constraint.start(), self.ends, self.most)


@dataclass(frozen=True, eq=False)
class _Timely:
    state: State
    ends: frozenset[int]
    left: int

    def step(self, token: int) -> State:
        return replace(self, state=self.state.step(token), left=self.left - 1)

    def mask(self) -> Tensor:
        mask = self.state.mask()
        return mask if self.left > 1 else mask & mask_of(len(mask), self.ends)

    def allows(self, token: int) -> bool:
        return (self.left > 1 or token in self.ends) and self.state.allows(token)

    def forced(self) -> tuple[int, ...]:
        return self.state.forced()[: self.left]

    def complete(self) -> bool:
        return self.state.complete()
