"""A request's warps and its constraint, apart: for methods that weigh a constraint instead of masking by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

from torch import Tensor

from ...core.stop import Stop
from ...core.warp.forbid import BadWords, Forbid, MinTokens, NoRepeatNgram
from ...core.warp.never_say import NeverSay
from ...core.warp.penalise import Generated, LogitBias, Repetition
from ...core.warp.warp import Both, Same, Temperature, Warp
from .combine import And
from .constraint import Constrained, Constraint, State, mask_of

COMMUTING = (Same, LogitBias, Repetition, Generated, NoRepeatNgram, BadWords, NeverSay, MinTokens, Forbid)
"""Warps that change the score of each token by itself: the same, whether other tokens were masked before or are after.

So does a temperature above 0. A truncation does not: what it keeps depends on what there is beside it.
"""


class Parted(NamedTuple):
    """A request's warps, apart: `free` may come before the constraint as well as after it, `after` must follow it."""

    free: Warp
    constraint: Constraint | None
    after: tuple[Warp, ...] = ()

    @property
    def greedy(self) -> bool:
        """Whether the first that must follow takes the best token, so that nothing is left to those after it."""
        return bool(self.after) and isinstance(self.after[0], Temperature)


def order(warp: Warp) -> Parted:
    """The warps before the constraint and those after it that could as well stand before, the constraint, the rest.

    What stands before the constraint already is free, whatever it is: that is the order that was asked for.
    """
    free: list[Warp] = []
    after: list[Warp] = []
    bound: list[Constraint] = []
    for one in _listed(warp):
        if isinstance(one, Constrained) and not after:
            bound.append(one.constraint)
        elif bound and (after or not _commutes(one)):
            after.append(one)
        else:
            free.append(one)
    return Parted(_joined(free), reduce(And, bound) if bound else None, tuple(after))


def parted(warp: Warp) -> tuple[Warp, Constraint | None]:
    """The warps to draw with and the constraint to weigh, None if there is none.

    The law that the constraint then conditions is the one after all other warps, truncations among them. At
    temperature 0 there is one text and nothing to weigh: then the constraint stays where it was, before the choice of
    the best token, so that the text is plain decoding's.
    """
    found = order(warp)
    parts = _listed(warp)
    bound = [part.constraint for part in parts if isinstance(part, Constrained)]
    if found.greedy or not bound:
        return warp, reduce(And, bound) if bound else None
    return _joined([part for part in parts if not isinstance(part, Constrained)]), reduce(And, bound)


def _listed(warp: Warp) -> list[Warp]:
    return [*_listed(warp.first), *_listed(warp.second)] if isinstance(warp, Both) else [warp]


def _joined(warps: Sequence[Warp]) -> Warp:
    some = [warp for warp in warps if not isinstance(warp, Same)]
    return reduce(lambda one, other: one | other, some) if some else Same()


def _commutes(warp: Warp) -> bool:
    return isinstance(warp, COMMUTING) or (isinstance(warp, Temperature) and warp.t > 0)


def timely(constraint: Constraint | None, stop: Stop) -> State | None:
    """The state to begin with, such that where only one more token may follow, it has to be one that ends the text.

    A text that is merely cut off would be none that meets the constraint.
    """
    if constraint is None:
        return None
    ends = stop.tokens and stop.most is not None
    return (ClosesInTime(constraint, stop.tokens, stop.most or 0) if ends else constraint).start()


def meets(state: State | None, reason: str) -> bool:
    """Whether a text that has ended meets its constraint, given the constraint's state after its last token.

    A text that a stop string ends is handed out without that string, so it is not the one that the state has seen: it
    is cut off, and meets nothing. Without a constraint every text will do.
    """
    return state is None or (reason != "string" and state.complete())


@dataclass(frozen=True, eq=False)
class ClosesInTime:
    """A constraint whose texts have at most `most` tokens, the last of them one of `ends`."""

    constraint: Constraint
    ends: frozenset[int]
    most: int

    def start(self) -> State:
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
