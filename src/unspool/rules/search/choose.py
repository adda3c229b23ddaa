"""Choosing among finished outputs: by score, by vote, by agreement. None of these asks the model again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from ...core.errors import BadRequest

T = TypeVar("T")


def best(outputs: Sequence[T], score: Callable[[T], float]) -> T:
    """Best-of-N: the output with the highest score; of equals the first."""
    _expect_some(outputs)
    return max(outputs, key=lambda output: _number(score(output), "score", output))


def vote(
    outputs: Sequence[T], answer: Callable[[T], Hashable | None], weight: Callable[[T], float] = lambda _: 1.0
) -> T:
    """Self-consistency: the first output that gives the answer with the most votes; None abstains, unless all do.

    `weight` is how much a vote counts. Of answers with equal votes the one that was given first wins.
    """
    _expect_some(outputs)
    votes: dict[Hashable, float] = {}
    for output in outputs:
        given = answer(output)
        if given is not None:
            votes[given] = votes.get(given, 0.0) + _number(weight(output), "weight", output)
    if not votes:
        return outputs[0]
    winner = max(votes, key=lambda given: votes[given])
    return next(output for output in outputs if answer(output) == winner)


def agree(outputs: Sequence[T], utility: Callable[[T, T], float], support: Sequence[T] = ()) -> T:
    """Minimum Bayes risk: the output with the highest mean utility against all, or against `support`.

    utility(output, other) is how good `output` is if `other` were the truth. With exact match this is the mode of the
    samples, so self-consistency on whole texts. Of equals the first. Cost: outputs·support calls.
    """
    _expect_some(outputs)
    others = support or outputs
    return max(outputs, key=lambda one: sum(_number(utility(one, other), "utility", one) for other in others))


def overlap(text: str, other: str, longest: int = 6, beta: float = 2.0) -> float:
    """The mean F-score of shared character n-grams, n from 1 to `longest`, without spaces: the heart of chrF."""
    scores = []
    mine, theirs = "".join(text.split()), "".join(other.split())
    for n in range(1, longest + 1):
        a, b = _grams(mine, n), _grams(theirs, n)
        if not a and not b:
            continue
        shared = (a & b).total()
        precision, recall = shared / max(1, a.total()), shared / max(1, b.total())
        down = beta**2 * precision + recall
        scores.append((1 + beta**2) * precision * recall / down if down else 0.0)
    return sum(scores) / len(scores) if scores else 1.0


def _grams(text: str, n: int) -> Counter[str]:
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))


def _number(value: float, name: str, output: object) -> float:
    """A value that can be compared: NaN would make whoever comes first the best."""
    if math.isnan(value):
        raise BadRequest(f"the {name} of {output!r:.80} is {value}; expected a number")
    return value


def _expect_some(outputs: Sequence[object]) -> None:
    if not outputs:
        raise BadRequest("there is nothing to choose from: give at least one output")
