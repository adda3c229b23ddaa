"""Chance as an argument: every random choice is addressed, so it can be drawn, replayed or enumerated.

A choice has an address (position, role, k, round) and an address has one uniform number, whoever asks and in whatever
order. So batches, drafters and kernels cannot change a text by drawing in another order, and a rule that uses the same
address twice gets the same number twice, in a proof as in real life.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from .law import Law, Point
from .race import Region

T = TypeVar("T", bound=Hashable)


class Role(IntEnum):
    """What a random number is for; different roles at one position are independent."""

    PICK = 0  # the token of plain decoding at this position
    DRAFT = 1  # a drafted token
    ACCEPT = 2  # whether a drafted token stands
    RESIDUAL = 3  # the token after the last accepted one
    ORDER = 4  # which hole to fill, which particle to keep
    FILL = 5  # the token for a hole, in one look of several


class At(NamedTuple):
    """The address of one random number.

    `position` is the place in the text that the choice is about, `k` tells siblings or particles apart, and `round` is
    the length of the text when the round began. Every round adds a token, so drafts of one position in two rounds get
    fresh noise, while PICK ignores the round and so stays the same with any drafter.
    """

    position: int
    role: Role
    k: int = 0
    round: int = 0


class Chance(Protocol):
    """A source of addressed randomness."""

    def choose(self, law: Law, at: At) -> int:
        """A token of `law`."""

    def coin(self, p: float, at: At) -> bool:
        """True with probability p."""

    def race(self, law: Law, at: At) -> int:
        """A token of `law`, by other numbers than `choose`: the first of Eₓ / p(x), E the waiting times at `at`."""


@dataclass(frozen=True)
class Readdressed:
    """Chance whose numbers stand at other addresses, so that several users of one source share none of them."""

    chance: Chance
    moved: Callable[[At], At]

    def choose(self, law: Law, at: At) -> int:
        return self.chance.choose(law, self.moved(at))

    def coin(self, p: float, at: At) -> bool:
        return self.chance.coin(p, self.moved(at))

    def race(self, law: Law, at: At) -> int:
        return self.chance.race(law, self.moved(at))


class Philox:
    """Draws: uniforms from the counter-based generator Philox4x32-10 (Salmon et al. 2011), keyed by seed.

    The counter is the address, so nothing is stored and kernels can compute the same numbers. `stream` tells several
    samples of one seed apart.
    """

    def __init__(self, seed: int, stream: int = 0) -> None:
        self.seed, self.stream = seed & (2**64 - 1), stream & 0xFFFFFFFF

    def uniform(self, at: At) -> float:
        """The number in [0, 1) at this address, with 53 random bits."""
        a, b, _, _ = self._words(at)
        return ((a << 21) ^ (b >> 11)) * 2.0**-53

    def choose(self, law: Law, at: At) -> int:
        return law.best if isinstance(law, Point) else law.invert(self.uniform(at))

    def coin(self, p: float, at: At) -> bool:
        return p >= 1 or (p > 0 and self.uniform(at) < p)  # what is certain needs no number

    def race(self, law: Law, at: At) -> int:
        if isinstance(law, Point):
            return law.best
        _, _, c, d = self._words(at)
        return law.first(lambda size: waits(size, (c, d)))

    def _words(self, at: At) -> tuple[int, int, int, int]:
        position, role, k, round_ = at
        return philox((position, round_, role << 24 | k, self.stream), (self.seed & 0xFFFFFFFF, self.seed >> 32))


@lru_cache(maxsize=16)  # a draft and its target race with the same ones
def waits(size: int, key: tuple[int, int]) -> Tensor:
    """Independent exponentials, one per token: −log u, where token x is the counter of Philox and u is never 0."""
    zero = torch.zeros(size, dtype=torch.int64)
    a, b, _, _ = philox((torch.arange(size), zero, zero, zero), key)
    return -((((a << 21) ^ (b >> 11)).double() + 0.5) * 2.0**-53).log()


Word = TypeVar("Word", int, Tensor)


def philox(counter: tuple[Word, Word, Word, Word], key: tuple[int, int]) -> tuple[Word, Word, Word, Word]:
    """Ten rounds of Philox on four 32-bit words, or on tensors of them."""
    a, b, c, d = counter
    for j, k in _round_keys(key):
        x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
        # a product of tensors wraps round to a negative number, so what is shifted in must be masked away
        high_x, high_y = (x >> 32) & 0xFFFFFFFF, (y >> 32) & 0xFFFFFFFF
        a, b, c, d = high_y ^ b ^ j, y & 0xFFFFFFFF, high_x ^ d ^ k, x & 0xFFFFFFFF
    return a, b, c, d


@lru_cache(maxsize=256)  # one for each seed that is in use
def _round_keys(key: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """The keys of the ten rounds."""
    j, k = key
    return tuple(((j + 0x9E3779B9 * i) & 0xFFFFFFFF, (k + 0xBB67AE85 * i) & 0xFFFFFFFF) for i in range(10))


class Tape:
    """Replays given uniforms by address, so that a fast kernel can be checked token for token against its reference.

    `waiting` gives the waiting times of races, one per token.
    """

    def __init__(self, uniforms: Mapping[At, float], waiting: Mapping[At, Tensor] | None = None) -> None:
        self.uniforms, self.waiting = uniforms, waiting or {}

    def choose(self, law: Law, at: At) -> int:
        return law.invert(self.uniforms[at])

    def coin(self, p: float, at: At) -> bool:
        return self.uniforms[at] < p

    def race(self, law: Law, at: At) -> int:
        return law.first(lambda size: self.waiting[at][:size])


class Every:
    """Visits every branch of a random program; `law(program)` is the exact law of its result.

    An address stands for one uniform number. The first choice at an address splits [0, 1) into the intervals of its
    outcomes; a later choice at the same address can only split the interval that is left. So two programs run in one
    branch share their randomness as they would under one seed, and reused noise shows up as a wrong joint law. Races
    split the region of waiting times of their address in the same way.
    """

    SLIVER = 1e-14  # an interval this short is rounding between two sums of the same masses

    def __init__(self, most: int | None = None) -> None:
        self.most, self.branches = most, 0
        self._script: list[int] = []  # which outcome to take at each choice of this branch
        self._widths: list[int] = []  # how many outcomes there were
        self._left: dict[At, tuple[float, float]] = {}
        self._regions: dict[At, Region] = {}
        self.mass = 1.0
        self.choices: list[tuple[At, int]] = []  # of this branch: what came out at each address, in order

    @property
    def branch(self) -> tuple[int, ...]:
        """What tells this branch from all others: which of its outcomes each choice took."""
        return tuple(self._script[: len(self._widths)])

    def choose(self, law: Law, at: At) -> int:
        return self.split(law.steps, at)

    def coin(self, p: float, at: At) -> bool:
        return self.split([(1, p), (0, 1.0)], at) == 1

    def split(self, steps: list[tuple[int, float]], at: At) -> int:
        """The next unvisited outcome of a choice, given each outcome with the upper end of its interval of [0, 1)."""
        low, high = self._left.get(at, (0.0, 1.0))
        outcomes, start = [], 0.0
        for outcome, end in steps:
            left, right = max(start, low), min(end, high)
            if right - left > self.SLIVER:
                outcomes.append((outcome, left, right))
            start = end
        outcome, left, right = outcomes[self._taken(len(outcomes))]
        self._left[at] = (left, right)
        self.mass *= (right - left) / (high - low)
        self.choices.append((at, outcome))
        return outcome

    def race(self, law: Law, at: At) -> int:
        ends = [0.0, *(end for _, end in law.steps)]
        weights = {x: end - start for (x, end), start in zip(law.steps, ends, strict=False)}
        region = self._regions.get(at, Region()).of(tuple(weights))
        parts = [(x, region.won(weights, x)) for x in weights]
        likely = [(x, part) for x, part in parts if part.mass > self.SLIVER]
        winner, self._regions[at] = likely[self._taken(len(likely))]
        self.mass *= self._regions[at].mass / sum(part.mass for _, part in likely)
        self.choices.append((at, winner))
        return winner

    def _taken(self, outcomes: int) -> int:
        depth = len(self._widths)
        if depth == len(self._script):
            self._script.append(0)
        if self._script[depth] >= outcomes:
            raise Unrepeatable(
                f"choice {depth + 1} of a branch has {outcomes} outcomes now and had more before: the program remembers"
                " something from branch to branch, so its law cannot be enumerated"
            )
        self._widths.append(outcomes)
        return self._script[depth]

    def law(self, program: Callable[[Chance], T]) -> dict[T, float]:
        """The exact law of `program(chance)` over all branches."""
        found: defaultdict[T, float] = defaultdict(float)
        self._script, self.branches = [], 0
        while True:
            self._begin()
            result = program(self)
            found[result] += self.mass
            self.branches += 1
            if self.most is not None and self.branches > self.most:
                raise TooManyBranches(self.most)
            del self._script[len(self._widths) :]
            while self._script and self._script[-1] + 1 == self._widths[len(self._script) - 1]:
                self._script.pop()
            if not self._script:
                return dict(found)
            self._script[-1] += 1

    def replay(self, program: Callable[[Chance], T], branch: Sequence[int]) -> T:
        """The result of one branch alone, named as `branch` named it."""
        self._script = list(branch)
        self._begin()
        return program(self)

    def _begin(self) -> None:
        self._widths, self._left, self._regions, self.mass, self.choices = [], {}, {}, 1.0, []


class Unrepeatable(Exception):
    """A program that does not meet the same choices again when it takes the same branch."""


class TooManyBranches(Exception):
    """A program branches more than the enumerator was told to follow."""


def total_variation(a: Mapping[T, float], b: Mapping[T, float]) -> float:
    """½ Σ |a(x) − b(x)|: the largest difference in probability that any event can show."""
    return 0.5 * sum(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in {*a, *b})
