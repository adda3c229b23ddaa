"""Schedules, enumerated: what an ideal model gives for any partition of the places into looks.

Nothing here knows a closed form. It follows every answer through the schedule, so it is for laws with few answers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

from unspool.core.canvas import HOLE

from .closed import entropy
from .oracle import Exact, Tokens

Partition: TypeAlias = Sequence[Sequence[int]]


class Outcome(NamedTuple):
    """Of one schedule: the probability of a right answer, L = Σ_t E[C(S_t | S_<t)], and KL(P ‖ Q), which equals L."""

    success: float
    bound: float
    divergence: float


def ahead(size: int, k: int) -> Partition:
    """Left to right, k places per look."""
    return [range(i, min(i + k, size)) for i in range(0, size, k)]


def texts(exact: Exact) -> dict[Tokens, float]:
    """Every answer with its probability, by the chain rule from left to right."""
    found: dict[Tokens, float] = {}

    def visit(known: Tokens, mass: float) -> None:
        if len(known) == exact.size:
            found[known] = mass
            return
        for token, p in _laws(exact, known)[len(known)].items():
            visit((*known, token), mass * p)

    visit((), 1.0)
    return found


def reached(exact: Exact, answer: Tokens, partition: Partition) -> float:
    """Q(y): how probable it is that this schedule ends with this answer."""
    known, mass = [HOLE] * exact.size, 1.0
    for places in partition:
        laws = _laws(exact, tuple(known))
        for i in places:
            mass *= laws[i].get(answer[i], 0.0)
        for i in places:
            known[i] = answer[i]
    return mass


def outcome(exact: Exact, partition: Partition) -> Outcome:
    """Everything about one schedule, from all answers."""
    exact = _Remembered(exact)
    law = texts(exact)
    divergence, success = [], []
    for answer, p in law.items():
        q = reached(exact, answer, partition)
        success.append(q)
        divergence.append(p * math.log(p / q))
    return Outcome(math.fsum(success), bound(law, partition), math.fsum(divergence))


def bound(law: dict[Tokens, float], partition: Partition) -> float:
    """Σ_t E[C(S_t | S_<t)], from the joint law of the answers alone."""
    total, before = [], tuple[int, ...]()
    for places in partition:
        for share, part in _split(law, before):
            total.append(share * correlation(part, places))
        before = (*before, *places)
    return math.fsum(total)


def correlation(law: dict[Tokens, float], places: Sequence[int]) -> float:
    """C = Σᵢ H(yᵢ) − H(y_S): what is lost if these places are drawn as if they were independent."""
    alone = math.fsum(entropy(*_marginal(law, (i,)).values()) for i in places)
    return alone - entropy(*_marginal(law, places).values())


def partitions(places: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every ordered partition of these places."""
    if not places:
        yield []
        return
    first, *rest = places
    for chosen in range(2 ** len(rest)):
        others = [x for n, x in enumerate(rest) if not chosen >> n & 1]
        mine = [first, *(x for n, x in enumerate(rest) if chosen >> n & 1)]
        for tail in partitions(others):
            for at in range(len(tail) + 1):
                yield [*tail[:at], mine, *tail[at:]]


class _Remembered:
    """The same law, which works nothing out twice: answers share most of their way."""

    def __init__(self, exact: Exact) -> None:
        self.size, self.mass, self.draw = exact.size, exact.mass, exact.draw
        self.given = cache(exact.given)


def _laws(exact: Exact, known: Tokens) -> list[dict[int, float]]:
    """The possible tokens of every place with their probabilities."""
    told = exact.given(known + (HOLE,) * (exact.size - len(known)))
    assert told is not None  # an answer fits itself
    return [{x: p for x, p in enumerate(row) if p > 0} for row in told.tolist()]


def _marginal(law: dict[Tokens, float], places: Sequence[int]) -> dict[Tokens, float]:
    shares: defaultdict[Tokens, float] = defaultdict(float)
    for answer, p in law.items():
        shares[tuple(answer[i] for i in places)] += p
    return shares


def _split(law: dict[Tokens, float], places: Sequence[int]) -> Iterator[tuple[float, dict[Tokens, float]]]:
    """The law given each of the values at these places, with their shares."""
    parts: defaultdict[Tokens, dict[Tokens, float]] = defaultdict(dict)
    for answer, p in law.items():
        parts[tuple(answer[i] for i in places)][answer] = p
    for part in parts.values():
        share = math.fsum(part.values())
        yield share, {answer: p / share for answer, p in part.items()}
