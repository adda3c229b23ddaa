"""Closed forms: how often an ideal model is right if k places are filled per look, and what that costs in nats.

The schedule is left to right, k places per look, each drawn from its exact conditional given all earlier looks. Then

  success  Σ_y Q(y) over the right answers y, Q(y) = Π_t Π_{i∈S_t} p(yᵢ | x, y_{S_<t})
  bound    L = Σ_t E[C(S_t | x, y_{S_<t})] = KL(P ‖ Q), C = Σᵢ H(yᵢ) − H(y): the total correlation of what is
           filled together; no model, however good, gets below it with this schedule
  information  C(Y | x), the bound for a single look

The recursions follow one thing that is still open: in `replace_random` the new item has not appeared, in
`insert_random` and `remove_random` the place has not been passed; r counts the places or items that are left. As soon
as it is known, the rest is certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .tasks import COLOURS, WORDS


@dataclass(frozen=True)
class Ideal:
    """The closed forms of one task: functions of n items and k places per look."""

    success: Callable[[int, int], float]
    bound: Callable[[int, int], float]
    size: Callable[[int], int] = lambda n: n  # places of an answer

    def information(self, n: int) -> float:
        """C(Y | x): the bound if all places are filled in one look."""
        return self.bound(n, self.size(n))


def entropy(*masses: float) -> float:
    """−Σ p ln p, in nats."""
    return -math.fsum(p * math.log(p) for p in masses if p > 0)


def _steps(size: int, k: int) -> list[int]:
    """How many places each look fills."""
    return [min(k, size - done) for done in range(0, size, k)]


# ---- one answer: nothing to lose

CERTAIN = Ideal(lambda n, k: 1.0, lambda n, k: 0.0)


# ---- replace_random: one of n places holds the new item


def _replace_success(n: int, k: int) -> float:
    """f(r) = (1 − 1/r)ᵏ f(r − k) + k/r (1 − 1/r)ᵏ⁻¹, f(0) = 0."""
    found, left = 0.0, 1.0
    for r, now in _left(n, k):
        found += left * now / r * (1 - 1 / r) ** (now - 1)
        left *= (1 - 1 / r) ** now
    return found


def _replace_bound(n: int, k: int) -> float:
    """Σ r/n · (k H(1/r) − H(k of 1/r, the rest)): with probability r/n it has not appeared yet."""
    return math.fsum(
        r / n * (now * entropy(1 / r, 1 - 1 / r) - entropy(*(1 / r,) * now, 1 - now / r)) for r, now in _left(n, k)
    )


def _left(size: int, k: int) -> list[tuple[int, int]]:
    """For each look: how many places are left before it, and how many it fills."""
    return [(size - n * k, now) for n, now in enumerate(_steps(size, k))]


# ---- insert_random: n + 1 places; at i the newcomer 1/r, the item of i (r − 1 − i)/r, the one before i/r


def _insert_success(n: int, k: int) -> float:
    found, left = 0.0, 1.0
    for r, now in _left(n + 1, k):
        for at in range(now):
            before = math.prod((r - 1 - i) / r for i in range(at))
            found += left * before / r * math.prod(i / r for i in range(at + 1, now))
        left *= math.prod((r - 1 - i) / r for i in range(now))
    return found


def _insert_bound(n: int, k: int) -> float:
    total = 0.0
    for r, now in _left(n + 1, k):
        alone = math.fsum(entropy(1 / r, (r - 1 - i) / r, i / r) for i in range(now))
        total += r / (n + 1) * (alone - entropy(*(1 / r,) * now, 1 - now / r))
    return total


# ---- remove_random: n − 1 places, r items left; at i the item of i (r − 1 − i)/r, the next one (i + 1)/r


def _remove_success(n: int, k: int) -> float:
    found, left = 0.0, 1.0
    for places, now in _left(n - 1, k):
        r = places + 1
        for at in range(now):
            before = math.prod((r - 1 - i) / r for i in range(at))
            found += left * before * math.prod((i + 1) / r for i in range(at, now))
        left *= math.prod((r - 1 - i) / r for i in range(now))
    return found + left  # the last item is the one removed


def _remove_bound(n: int, k: int) -> float:
    total = 0.0
    for places, now in _left(n - 1, k):
        r = places + 1
        alone = math.fsum(entropy((i + 1) / r, 1 - (i + 1) / r) for i in range(now))
        total += r / n * (alone - entropy(*(1 / r,) * now, 1 - now / r))
    return total


# ---- shuffle: every look draws `now` of r items, all different with probability (r)ₖ / rᵏ


def _shuffle_success(n: int, k: int) -> float:
    return math.prod(math.perm(r, now) / float(r) ** now for r, now in _left(n, k))


def _shuffle_bound(n: int, k: int) -> float:
    return math.fsum(now * math.log(r) - math.log(math.perm(r, now)) for r, now in _left(n, k))


# ---- parity: fair bits until one is left; only the last look matters


def _parity_success(n: int, k: int) -> float:
    return 1.0 if _steps(n, k)[-1] == 1 else 0.5


def _parity_bound(n: int, k: int) -> float:
    return 0.0 if _steps(n, k)[-1] == 1 else math.log(2)


# ---- words: K of them, different in every place; the first look decides


def _words_success(n: int, k: int) -> float:
    return 1 / math.prod([WORDS] * (min(n, k) - 1))


def _words_bound(n: int, k: int) -> float:
    return (min(n, k) - 1) * math.log(WORDS)


# ---- chain: neighbours differ, c colours; at distance t from a known place its colour is back with probability qₜ


def _back(t: int, c: int = COLOURS) -> float:
    """qₜ = 1/c + (1 − 1/c) (−1/(c − 1))ᵗ."""
    return 1 / c + (1 - 1 / c) * (-1 / (c - 1)) ** t


def _chain_success(n: int, k: int, c: int = COLOURS) -> float:
    first, *rest = _steps(n, k)
    success = (1 - 1 / c) ** (first - 1)
    for now in rest:
        same, other = 1.0, 0.0  # weight of right beginnings that end in the known colour, or in one given other
        for t in range(1, now + 1):
            q = _back(t, c)
            same, other = q * (c - 1) * other, (1 - q) / (c - 1) * (same + (c - 2) * other)
        success *= same + (c - 1) * other
    return success


def _chain_bound(n: int, k: int, c: int = COLOURS) -> float:
    first, *rest = _steps(n, k)
    total = (first - 1) * math.log(c / (c - 1))
    for now in rest:
        alone = (entropy(_back(t, c), *((1 - _back(t, c)) / (c - 1),) * (c - 1)) for t in range(1, now + 1))
        total += math.fsum(alone) - now * math.log(c - 1)
    return total


IDEAL: dict[str, Ideal] = {
    **dict.fromkeys(("copy", "reverse", "sort", "replace_index"), CERTAIN),
    "insert_index": Ideal(CERTAIN.success, CERTAIN.bound, lambda n: n + 1),
    "remove_index": Ideal(CERTAIN.success, CERTAIN.bound, lambda n: n - 1),
    "replace_random": Ideal(_replace_success, _replace_bound),
    "insert_random": Ideal(_insert_success, _insert_bound, lambda n: n + 1),
    "remove_random": Ideal(_remove_success, _remove_bound, lambda n: n - 1),
    "shuffle": Ideal(_shuffle_success, _shuffle_bound),
    "parity": Ideal(_parity_success, _parity_bound),
    "words": Ideal(_words_success, _words_bound),
    "chain": Ideal(_chain_success, _chain_bound),
}
"""The closed forms by task; there is none for `latin`, whose laws are enumerated."""
