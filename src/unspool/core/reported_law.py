"""Laws of which only a report is left: log-probabilities of the token that was chosen and of the few best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import overload

from torch import Tensor

from .law import Law

MOST = 20  # tokens that a report names at most, beside the chosen one: what OpenAI's clients may ask for


class ReportedLaw(Law):
    """A law by what was reported of it; nothing else can be asked."""

    def __init__(self, known: Mapping[int, float], best: Sequence[int] = ()) -> None:
        self._known, self._best = known, best

    @property
    def scores(self) -> Tensor:
        """Nobody has them any more."""
        raise TypeError(f"of this law only {len(self._known)} log-probabilities were reported; submit with laws=True")

    def logprob(self, token: int) -> float:
        """log p(token), of those that were reported."""
        return self._known[token]

    def top(self, k: int) -> list[int]:
        """The k best tokens, best first, of those that were reported."""
        return list(self._best[:k])

    def __repr__(self) -> str:
        return f"ReportedLaw({self._known})"


def reported(law: Law, token: int, k: int) -> ReportedLaw:
    """What a report says of a law: the k best tokens, and the one that was chosen."""
    best = law.top(k) if k else []
    return ReportedLaw({x: law.logprob(x) for x in (token, *best)}, best)


def both_reported(raw: Law, law: Law, token: int, k: int) -> tuple[Law, Law] | tuple[None, None]:
    """What is told of a law before and after warps: the chosen token and the k best of either; below 0 nothing."""
    if k < 0:
        return None, None
    best = (raw.top(k), law.top(k)) if k else ([], [])
    tokens = dict.fromkeys((token, *best[0], *best[1]))
    first, second = ({x: each.logprob(x) for x in tokens} for each in (raw, law))
    return ReportedLaw(first, best[0]), ReportedLaw(second, best[1])


def worth_keeping(raw: Law, law: Law, token: int, told: float) -> tuple[Law, Law]:
    """What is to be kept of a law before and after warps until its token is told, by `Stop.told`.

    A law may be a row of all that a forward computed, which it holds on to.
    """
    if told == math.inf:
        return raw, law
    before, after = both_reported(raw, law, token, int(told))
    return (point := Law.point(token), point) if before is None or after is None else (before, after)


class Reports(Sequence[Law]):
    """The reports on tokens that follow each other, each made into a law when somebody looks.

    A row of `logprobs` [n, 1 + k] begins with the chosen token's; behind it stand those of the row's `best` [n, k].
    """

    def __init__(self, tokens: Sequence[int], logprobs: Tensor, best: Tensor) -> None:
        self._tokens, self._logprobs, self._best = tokens, logprobs, best

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, index: int) -> Law: ...
    @overload
    def __getitem__(self, index: slice) -> Reports: ...
    def __getitem__(self, index: int | slice) -> Law | Reports:
        if isinstance(index, slice):
            return Reports(self._tokens[index], self._logprobs[index], self._best[index])
        chosen, *others = self._logprobs[index].tolist()
        best = self._best[index].tolist()
        return ReportedLaw({**dict(zip(best, others, strict=True)), self._tokens[index]: chosen}, best)
