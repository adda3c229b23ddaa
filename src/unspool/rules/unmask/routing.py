"""Whether a look more is worth it: the ways in which S2D2 decides to check a run of drafts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ...core.option import expect, level

CHECK, TRUST = 0, 1


class RunSeen(NamedTuple):
    """What is known of the first run of holes before it is checked or not."""

    expected: float  # drafts that are expected to stand: Ê = Σₖ Πᵢ≤ₖ exp(−Hᵢ / ln V)
    sure: int  # holes that the rule would fill without a check
    span: int  # holes of the run
    progress: float  # share of the window that is filled
    entropy: float  # mean of the run, in nats


class Route(Protocol):
    """Decides for one request; `begin` gives it a memory of its own."""

    def begin(self) -> Route:
        """The same with nothing learnt."""

    def __call__(self, seen: RunSeen) -> bool:
        """Whether to check."""

    def learn(self, tokens: int) -> None:
        """How many holes were filled after the last answer."""


@dataclass(frozen=True)
class AboveCost:
    """Check if Ê ≥ `cost`."""

    cost: float = 1.0

    def __post_init__(self) -> None:
        expect(level(self.cost) or self.cost == -math.inf, "checked:cost", self.cost, "a number, or −∞ for always")

    def begin(self) -> AboveCost:
        return self

    def __call__(self, seen: RunSeen) -> bool:
        return seen.expected >= self.cost

    def learn(self, tokens: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class AboveSure(AboveCost):
    """Check if Ê ≥ `cost` · (holes that are sure without a check): the more of these, the less a check brings."""

    def __call__(self, seen: RunSeen) -> bool:
        return seen.expected >= self.cost * seen.sure


@dataclass
class Hysteresis:
    """Begin to check at Ê − `cost` ≥ `on`, and go on as long as it is at least `off`: so that it does not flicker."""

    cost: float = 1.0
    on: float = 1.0
    off: float = -5.0
    checking: bool = False

    def __post_init__(self) -> None:
        expect(level(self.cost), "checked:cost", self.cost, "a number")
        expect(level(self.on) and level(self.off) and self.off <= self.on, "off", self.off, f"at most on, {self.on}")

    def begin(self) -> Hysteresis:
        return Hysteresis(self.cost, self.on, self.off)

    def __call__(self, seen: RunSeen) -> bool:
        self.checking = seen.expected - self.cost >= (self.off if self.checking else self.on)
        return self.checking

    def learn(self, tokens: int) -> None:
        """Nothing."""


@dataclass
class Arm:
    """How often something was done, and the tokens per look that it brought."""

    tried: int = 0
    gained: float = 0.0


@dataclass
class Bandit:
    """UCB1 over kinds of runs: whichever has the larger mean of tokens per look, plus `bonus`·√(2 ln N / n).

    Runs are of one kind if their spans (by fours), the window's progress (by quarters) and their mean entropies (by
    nats) are alike. What was not tried yet in a kind comes first, checking before trusting. A check is two looks.
    """

    bonus: float = 1.0
    arms: dict[tuple[int, int, int], tuple[Arm, Arm]] = field(default_factory=dict)
    last: tuple[Arm, int] | None = None

    def begin(self) -> Bandit:
        return Bandit(self.bonus)

    def __call__(self, seen: RunSeen) -> bool:
        kind = (seen.span // 4, min(3, int(4 * seen.progress)), int(seen.entropy))
        arms = self.arms.setdefault(kind, (Arm(), Arm()))
        total = sum(arm.tried for arm in arms)
        chosen = max((CHECK, TRUST), key=lambda way: self._worth(arms[way], total))
        self.last = arms[chosen], 2 if chosen == CHECK else 1
        return chosen == CHECK

    def _worth(self, arm: Arm, total: int) -> float:
        if not arm.tried:
            return math.inf
        return arm.gained / arm.tried + self.bonus * math.sqrt(2 * math.log(total) / arm.tried)

    def learn(self, tokens: int) -> None:
        """Count what the last answer brought."""
        if self.last is not None:
            arm, looks = self.last
            arm.tried += 1
            arm.gained += tokens / looks


ROUTES: Mapping[str, type[AboveCost] | type[AboveSure] | type[Hysteresis] | type[Bandit]] = {
    "static": AboveCost,
    "dynamic": AboveSure,
    "hysteresis": Hysteresis,
    "bandit": Bandit,
}
