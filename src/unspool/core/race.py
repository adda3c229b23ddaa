"""Races: each token waits an exponential time over its probability, and the first to arrive is chosen.

With Eₓ ~ Exp(1), independent, the first of Eₓ / p(x) has law p. Two laws that race with the same E tend to choose the
same token: Pr(both choose x) = 1 / Σ over y of max(p(y)/p(x), q(y)/q(x)), in all ≥ (1 − TV) / (1 + TV).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .chance import At, Chance
    from .law import Law


@dataclass(frozen=True)
class Racing:
    """Chance that lets the tokens race wherever one is to be chosen."""

    chance: Chance

    def choose(self, law: Law, at: At) -> int:
        return self.chance.race(law, at)

    def race(self, law: Law, at: At) -> int:
        return self.chance.race(law, at)

    def coin(self, p: float, at: At) -> bool:
        return self.chance.coin(p, at)


Corner = Mapping[int, float]  # waiting times of tokens, of sum 1; tokens left out wait 0
Cell = tuple[float, tuple[Corner, ...]]  # a simplex and its probability

ROUNDING = 1e-13


@dataclass(frozen=True)
class Region:
    """What is known of the waiting times at an address: a set of simplices, for E / ΣE is uniform on a simplex.

    Who wins a race does not depend on ΣE, and "x is before y" is a plane through the region. So what is known after any
    number of races is a polytope, and its probability is its volume: enumeration stays exact, for any laws at once.
    """

    tokens: tuple[int, ...] = ()
    cells: tuple[Cell, ...] = ((1.0, ()),)

    @property
    def mass(self) -> float:
        """The probability of this region."""
        return sum(mass for mass, _ in self.cells)

    def of(self, tokens: tuple[int, ...]) -> Region:
        """The same, with these tokens among those that wait: nothing is known of a new one."""
        new = tuple(x for x in tokens if x not in self.tokens)
        corners = tuple({x: 1.0} for x in new)
        return Region(self.tokens + new, tuple((mass, old + corners) for mass, old in self.cells))

    def won(self, weights: Mapping[int, float], winner: int) -> Region:
        """The part in which `winner` arrives first of all that race with these weights."""
        part = self
        for rival, weight in weights.items():
            if rival != winner:
                part = part._before(winner, weights[winner], rival, weight)
        return part

    def _before(self, winner: int, mine: float, rival: int, other: float) -> Region:
        cells: list[Cell] = []
        for mass, corners in self.cells:
            late = [c.get(winner, 0.0) * other - c.get(rival, 0.0) * mine for c in corners]
            cells += _below(mass, corners, late)
        return Region(self.tokens, tuple(cells))


def _below(mass: float, corners: tuple[Corner, ...], height: list[float]) -> list[Cell]:
    """The part of a simplex where a linear function, given at its corners, is below 0, as simplices.

    An edge from a corner below to one above is cut where the function is 0, at a share s of its length. The cut divides
    the simplex into two, with the shares s and 1 − s of its volume; each has one corner less on the wrong side or a
    corner on the plane more.
    """
    low, high = min(height, default=0.0), max(height, default=0.0)
    if high <= ROUNDING:
        return [(mass, corners)]
    if low >= -ROUNDING:
        return []
    a, b = height.index(low), height.index(high)
    s = low / (low - high)
    cut = {x: (1 - s) * corners[a].get(x, 0.0) + s * corners[b].get(x, 0.0) for x in {*corners[a], *corners[b]}}
    near, far = list(corners), list(corners)
    near[b], far[a] = cut, cut
    there, here = list(height), list(height)
    here[b], there[a] = 0.0, 0.0
    return _below(mass * s, tuple(near), here) + _below(mass * (1 - s), tuple(far), there)
