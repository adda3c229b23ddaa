"""How many tokens to draft in a round: small rules that see past rounds, and how sure the draft was of kept tokens.

A rule may never look at a drawn token to decide whether that token is kept. So a rule that stops at a doubtful token
stops after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

from ...core.errors import BadRequest
from ...core.law import Law


class Length(Protocol):
    """A rule with an immutable state per request; a rule without memory keeps the defaults."""

    def start(self) -> Any:
        """The state before the first round."""
        return None

    def step(self, state: Any, sure: Sequence[float], accepted: int) -> Any:
        """The state after a round in which the first `accepted` of these tokens stood."""
        return state

    def most(self, state: Any) -> int:
        """How many tokens to draft in the coming round, at most."""

    def enough(self, state: Any, sure: Sequence[float]) -> bool:
        """Whether to stop after kept tokens that the draft gave these probabilities."""
        return False

    def last(self, state: Any, law: Law) -> bool:
        """Whether the token that is about to be drawn from this law of the draft is the last one."""
        return False

    def priced(self, ratio: float) -> Length:
        """The rule on a machine where a draft step takes so many steps of the target."""
        return self

    @property
    def asks_price(self) -> bool:
        """Whether it wants to be told that."""
        return False


@dataclass(frozen=True)
class FixedLength(Length):
    """The same number every round."""

    tokens: int = 4

    def __post_init__(self) -> None:
        _expect(self.tokens >= 0, f"fixed:tokens={self.tokens}", "0 or more tokens")

    def most(self, state: Any) -> int:
        return self.tokens


@dataclass(frozen=True)
class Heuristic(Length):
    """Two more after a round in which every token stood, one fewer after any other, between 1 and `longest`.

    The schedule "heuristic" of transformers, with the paper id of the method it serves: 2211.17192.
    """

    first: int = 5
    longest: int = 20

    def __post_init__(self) -> None:
        _expect(1 <= self.first <= self.longest, f"{self}", "1 ≤ first ≤ longest")

    def start(self) -> int:
        return self.first

    def step(self, state: int, sure: Sequence[float], accepted: int) -> int:
        if not sure:
            return state
        return min(state + 2, self.longest) if accepted == len(sure) else max(state - 1, 1)

    def most(self, state: int) -> int:
        return state


@dataclass(frozen=True)
class Ema(Length):
    """One more than the moving average of accepted tokens; every `probe` rounds `longest`, to see what was missed.

    m ← (1 − w) · m + w · (accepted + [all stood]): a round in which all stood says only that at least so many do, so
    it counts as one more. After the dynamic window of ExLlamaV3, reconstructed from a description.
    """

    longest: int = 16
    weight: float = 0.2
    probe: int = 16

    def __post_init__(self) -> None:
        _expect(
            self.longest >= 1 and 0 < self.weight <= 1 and self.probe >= 1,
            f"{self}",
            "longest ≥ 1, 0 < weight ≤ 1 and probe ≥ 1",
        )

    def start(self) -> tuple[float, int]:
        return self.longest / 2, 0

    def step(self, state: tuple[float, int], sure: Sequence[float], accepted: int) -> tuple[float, int]:
        mean, rounds = state
        if not sure:
            return mean, rounds + 1
        seen = accepted + (accepted == len(sure))
        return (1 - self.weight) * mean + self.weight * seen, rounds + 1

    def most(self, state: tuple[float, int]) -> int:
        mean, rounds = state
        if (rounds + 1) % self.probe == 0:
            return self.longest
        return min(int(mean + 0.5) + 1, self.longest)


@dataclass(frozen=True)
class ConfidentLength(Length):
    """Stop after the token at which 1 − Π q(kept tokens) exceeds `doubt`, between `least` and `longest` tokens.

    SpecDec++ (2405.19715) proves that the best stopping rule is such a threshold on the probability that something has
    been rejected. Its trained head is replaced by the draft's own probability of the token it drew, so no part is
    trained. doubt = 0 gives `least`, 1 gives `longest`.
    """

    doubt: float = 0.3
    least: int = 2
    longest: int = 20

    def __post_init__(self) -> None:
        _expect(0 <= self.doubt <= 1 and 1 <= self.least <= self.longest, f"{self}", "0 ≤ doubt ≤ 1 ≤ least ≤ longest")

    def most(self, state: Any) -> int:
        return self.longest

    def enough(self, state: Any, sure: Sequence[float]) -> bool:
        return len(sure) >= self.least and 1 - prod(sure) > self.doubt


def speed_up(alpha: float, ratio: float, tokens: int) -> float:
    """(1 − α^(γ+1)) / ((1 − α)(γc + 1)): what γ drafted tokens make of plain decoding's speed, by 2211.17192.

    α is how often a drafted token stands, c the time of a draft step in steps of the target.
    """
    gained = tokens + 1.0 if alpha >= 1 else (1 - alpha ** (tokens + 1)) / (1 - alpha)
    return gained / (tokens * ratio + 1)


def best_length(alpha: float, ratio: float, longest: int) -> int:
    """The γ ≤ `longest` with the largest speed-up; 0 if drafting does not pay, which is when α ≤ c."""
    return max(range(longest + 1), key=lambda tokens: (speed_up(alpha, ratio, tokens), -tokens))


@dataclass(frozen=True)
class Best(Length):
    """The length with the best speed-up for the α seen so far and a measured c; 0 switches drafting off.

    α = (accepted + 1) / (tried + 2), where a round that fails tried one token more than it accepted. Every `probe`
    rounds at least one token is drafted, so that α can recover. `ratio` is c; 0 has it measured: how long a forward of
    the draft takes here and now, in forwards of the target.
    """

    ratio: float = 0.0
    longest: int = 16
    probe: int = 16

    def __post_init__(self) -> None:
        _expect(
            self.ratio >= 0 and self.longest >= 1 and self.probe >= 1, f"{self}", "ratio ≥ 0, longest ≥ 1 and probe ≥ 1"
        )

    @property
    def asks_price(self) -> bool:
        return self.ratio == 0

    def priced(self, ratio: float) -> Length:
        return replace(self, ratio=ratio)

    def start(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def step(self, state: tuple[int, int, int], sure: Sequence[float], accepted: int) -> tuple[int, int, int]:
        hits, tries, rounds = state
        return hits + accepted, tries + min(accepted + 1, len(sure)), rounds + 1

    def most(self, state: tuple[int, int, int]) -> int:
        hits, tries, rounds = state
        tokens = best_length((hits + 1) / (tries + 2), self.ratio, self.longest)
        return max(tokens, 1) if (rounds + 1) % self.probe == 0 else tokens


Fate = tuple[float, bool]  # the draft's probability of a token, and whether it stood


@dataclass(frozen=True)
class Threshold(Length):
    """Stop after the first token that the draft gave less than a threshold, and learn the threshold from what stood.

    Of the probabilities seen so far, the one t with the least FPR(t) + 3·FNR(t), where p ≥ t predicts that a token
    stands: to have drafted in vain costs 1, to have stopped too soon 3. t is `first` until `least` fates
    are known, of both kinds; the fate of tokens after a rejected one is not. As transformers does it for
    assistant_confidence_threshold, but only the last `memory` fates count.
    """

    first: float = 0.4
    longest: int = 20
    least: int = 6
    memory: int = 512

    def __post_init__(self) -> None:
        _expect(
            0 <= self.first <= 1 and self.longest >= 1 and 2 <= self.least <= self.memory,
            f"{self}",
            "0 ≤ first ≤ 1, longest ≥ 1 and 2 ≤ least ≤ memory",
        )

    def start(self) -> tuple[float, tuple[Fate, ...]]:
        return self.first, ()

    def step(
        self, state: tuple[float, tuple[Fate, ...]], sure: Sequence[float], accepted: int
    ) -> tuple[float, tuple[Fate, ...]]:
        threshold, fates = state
        fates = (*fates, *((p, i < accepted) for i, p in enumerate(sure[: accepted + 1])))[-self.memory :]
        if len(fates) >= self.least and len({stood for _, stood in fates}) == 2:
            threshold = best_threshold(fates)
        return threshold, fates

    def most(self, state: tuple[float, tuple[Fate, ...]]) -> int:
        return self.longest

    def enough(self, state: tuple[float, tuple[Fate, ...]], sure: Sequence[float]) -> bool:
        return bool(sure) and sure[-1] < state[0]


def best_threshold(fates: Sequence[Fate]) -> float:
    """The probability t with the least FPR(t) + 3·FNR(t); of several the largest. Needs fates of both kinds."""
    stand = sum(stood for _, stood in fates)
    fall, best = len(fates) - stand, 1.0
    least = 3 * stand * fall  # costs times both numbers, so that those of two probabilities are equal without rounding
    hits = misses = 0  # tokens with p ≥ t that stood, and that fell
    ordered = sorted(fates, reverse=True)
    for i, (p, stood) in enumerate(ordered):
        hits, misses = hits + stood, misses + (not stood)
        cost = misses * stand + 3 * (stand - hits) * fall
        if (i + 1 == len(ordered) or ordered[i + 1][0] < p) and cost < least:
            best, least = p, cost
    return best


def _expect(fits: bool, given: str, wanted: str) -> None:
    if not fits:
        raise BadRequest(f"{given} cannot be used; expected {wanted}")
