"""The best continuations of several texts, found text by text, so that others can go on in between."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.asks import Ask, GiveWay
from ...core.law import NEVER, Law

NO_FINES: Mapping[int, float] = MappingProxyType({})


class Candidate(NamedTuple):
    """Token `token` after text `row`, worth `value`."""

    row: int
    token: int
    value: float


class Leaders:
    """The `count` best of all candidates that were added, best first; of equals the earlier text, then the lower token.

    So the best of one text is greedy's. Nothing is kept that can no longer be among them.
    """

    def __init__(self, count: int) -> None:
        self._count, self._size = count, 1
        self._places, self._worth = list[Tensor](), list[Tensor]()  # number of a text · vocabulary + token
        self._least: Tensor | None = None  # what the last of so many is worth, once there are as many

    def add(self, row: int, worth: Tensor) -> None:
        """Take note of what every token after a text is worth; texts come in their order."""
        self._size = len(worth)
        least = worth.topk(min(self._count, self._size)).values[-1] if self._least is None else self._least
        # topk breaks ties as it likes: take all that are as good as the last
        at = ((worth >= least) & (worth > NEVER)).nonzero().flatten()
        places, found = torch.cat([*self._places, at + row * self._size]), torch.cat([*self._worth, worth[at]])
        if len(found) >= self._count:
            self._least = found.topk(self._count).values[-1]
            among = found >= self._least
            places, found = places[among], found[among]
        self._places, self._worth = [places], [found]

    def best(self) -> list[Candidate]:
        """The best of all that were added."""
        if not self._worth:
            return []
        values, order = self._worth[0].sort(descending=True, stable=True)
        places: list[int] = self._places[0][order[: self._count]].tolist()
        pairs = zip(places, values[: self._count].tolist(), strict=True)
        return [Candidate(place // self._size, place % self._size, value) for place, value in pairs]


def worth_of(law: Law, base: float, fines: Mapping[int, float] = NO_FINES) -> Tensor:
    """base + log p less the fine of every token; where no token may follow, none is worth anything."""
    worth = law.scores.double()
    if not law.is_empty():
        worth = worth + (base - law.log_z)
    if fines:
        worth[list(fines)] -= worth.new_tensor(list(fines.values()))
    return worth


def leading(worths: Sequence[Tensor], count: int) -> list[Candidate]:
    """The `count` best of what every token after each of some texts is worth, best first."""
    leaders = Leaders(count)
    for row, worth in enumerate(worths):
        leaders.add(row, worth)
    return leaders.best()


def continuations(
    laws: Sequence[Law], bases: Sequence[float], count: int, fines: Mapping[int, float] = NO_FINES
) -> Generator[Ask, Any, list[Candidate]]:
    """The `count` best continuations of texts that are worth `bases` and have these laws, each less its fine."""
    leaders = Leaders(count)
    for row, (law, base) in enumerate(zip(laws, bases, strict=True)):
        leaders.add(row, worth_of(law, base, fines))
        yield GiveWay()
    return leaders.best()


def among_best(law: Law, count: int) -> Tensor:
    """Which tokens are as good as the `count`-th best, as one that looks for so many may choose any of them."""
    scores = law.scores
    return scores >= scores.topk(min(count, law.size)).values[-1]
