"""Resampling: which particles go on, and how often, in proportion to their weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Protocol

from ...core.chance import At, Chance, Role
from ...core.law import Law


class Resampling(Protocol):
    """Chooses who goes on: of n particles, the i-th on the average n·wᵢ/Σw times."""

    def __call__(self, weights: Sequence[float], chance: Chance, position: int) -> list[int]:
        """The particle that each place is given to; its random numbers are at this position."""


def multinomial(weights: Sequence[float], chance: Chance, position: int) -> list[int]:
    """Every place by a draw of its own. Cost: the most noise."""
    law = Law.of(weights)
    return [_drawn(law, chance, position, place) for place in range(len(weights))]


def stratified(weights: Sequence[float], chance: Chance, position: int) -> list[int]:
    """Place j by a draw from the j-th n-th of the cumulated weights."""
    n, total = len(weights), sum(weights)
    ends = [0.0, *accumulate(w / total for w in weights)]

    def share(place: int) -> Law:
        low, high = place / n, (place + 1) / n
        return Law.of([max(0.0, min(end, high) - max(start, low)) for start, end in pairwise(ends)])

    return [_drawn(share(place), chance, position, place) for place in range(n)]


def systematic(weights: Sequence[float], chance: Chance, position: int) -> list[int]:
    """All places by one number u in [0, 1/n): place j takes who holds u + j/n. Cost: the least noise."""
    n, total = len(weights), sum(weights)
    ends = list(accumulate(w / total for w in weights))
    ends[-1] = 1.0
    # between two of these u the answer is the same, so it is enough to draw which stretch u is in
    cuts = sorted({0.0, 1.0, *((end * n) % 1.0 for end in ends)})
    stretches = [(low + high) / 2 for low, high in pairwise(cuts)]
    which = Law.of([high - low for low, high in pairwise(cuts)])
    u = stretches[_drawn(which, chance, position, 0)]
    return [next(i for i, end in enumerate(ends) if end * n > u + place) for place in range(n)]


def residual(weights: Sequence[float], chance: Chance, position: int) -> list[int]:
    """⌊n·w⌋ places for certain, the others by draws from what that leaves over."""
    n, total = len(weights), sum(weights)
    wanted = [n * w / total for w in weights]
    sure = [i for i, share in enumerate(wanted) for _ in range(int(share))]
    if len(sure) == n:
        return sure
    rest = Law.of([share - int(share) for share in wanted])
    return [*sure, *(_drawn(rest, chance, position, place) for place in range(len(sure), n))]


RESAMPLE: dict[str, Resampling] = {
    "multinomial": multinomial,
    "residual": residual,
    "stratified": stratified,
    "systematic": systematic,
}


def _drawn(law: Law, chance: Chance, position: int, place: int) -> int:
    return law.draw(chance, At(position, Role.ORDER, place)).token
