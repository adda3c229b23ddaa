"""Turns: who takes long in every step waits in between, so that others go on at three quarters of their pace.

All who live together share the engine's steps, and a step takes as long as its longest part: a beam of 64 beside a
text that needs one row would make every token of that text as slow as its own. So requests whose part of a step is
larger than the usual one take turns with all the others: one of them at a time, and again when the others have had
three times as long as it took. What a text contains does not depend on it, only when it comes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from .job import Account, Job

BRIEF = 0.001  # seconds; who takes less is in nobody's way
SPREAD = 4 / 3  # how many times longer a step may take by those in it who take more than others
LEAD = 3  # seconds that the others have for every second of those who take long
YOUNG = 4  # steps in which requests show what they take: a search is wide only after its first tokens
FADING = 0.98  # what a forward counts for, each time that another has come


@dataclass
class StepTimes:
    """How long forwards take by their rows: a straight line through the last few dozens of them."""

    count: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def add(self, rows: int, seconds: float) -> None:
        """Take note of a forward."""
        self.count = FADING * self.count + 1
        self.rows = FADING * self.rows + rows
        self.seconds = FADING * self.seconds + seconds
        self.squares = FADING * self.squares + rows * rows
        self.products = FADING * self.products + rows * seconds

    @property
    def each(self) -> float:
        """Seconds that one more row takes; all of them, as long as forwards of one size are all that was seen."""
        if not self.rows:
            return 0.0
        spread = self.squares - self.rows**2 / self.count
        if spread < 1e-6 * self.squares:
            return self.seconds / self.rows
        return max(0.0, (self.products - self.rows * self.seconds / self.count) / spread)

    @property
    def start(self) -> float:
        """Seconds that a forward takes beside its rows."""
        return max(0.0, (self.seconds - self.each * self.rows) / self.count) if self.count else 0.0


class AllAtOnce:
    """Everybody takes part in every step: the requests are all of one account."""

    watches = False

    def expected(self, asking: list[Job], seconds: Callable[[Job], float]) -> list[Job]:
        """All of them."""
        return asking

    def over(self, account: Account) -> bool:
        return False

    def charge(self, job: Job, seconds: float) -> None:
        """Nobody counts."""

    def end(self) -> None:
        """Nothing is left to do."""


class Turns:
    """Chooses who takes part in a step, by what each took so far; where all are of one account, everybody does."""

    watches = True

    def __init__(self) -> None:
        self._debt = 0.0  # seconds that those who take long are ahead of the others
        self._usual = math.inf  # seconds in one step that nobody minds
        self._expected: dict[Account, float] = {}  # seconds of everybody in this step
        self._taken: dict[Account, float] = {}  # and what it was so far
        self._long: set[Account] = set()  # who takes longer than is usual
        self._ahead = 0.0  # seconds of this step that those had
        self._surprised = False  # whether somebody took far longer than was to be expected
        self._began = 0.0
        self._number = 0  # of this step

    def begin(
        self, wanting: Sequence[Job], seconds: Callable[[Job], float], live: Iterable[Job], start: float
    ) -> list[Job]:
        """Who takes part in a step, of those who want to, by the seconds each takes beside `start` for all."""
        self._began, self._ahead, self._number = perf_counter(), 0.0, self._number + 1
        self._surprised = False
        self._taken.clear()
        self._long.clear()
        self._expected = dict.fromkeys((job.account for job in live), 0.0)
        if len(self._expected) < 2:
            self._debt, self._usual = 0.0, math.inf
            return list(wanting)
        parts = {job: seconds(job) for job in wanting}
        for job, part in parts.items():
            self._expected[job.account] += part
        light = _light(sorted(self._expected.values()), start)
        self._usual = max(BRIEF, start + sum(light) / len(light))
        self._long.update(account for account, seconds in self._expected.items() if seconds > light[-1])
        return [job for job in parts if job.account not in self._long] + self._whose_turn(parts)

    def _whose_turn(self, parts: Mapping[Job, float]) -> list[Job]:
        """Of those who take long, who goes now: the one whose turn is longest ago, with as many texts as is usual."""
        long = sorted((job for job in parts if job.account in self._long), key=lambda job: (job.account.turn, job.turn))
        if self._debt > 0 or not long:
            return []
        found: list[Job] = []
        taken = 0.0
        for job in long:
            taken += parts[job]
            if found and (job.account is not found[0].account or taken > self._usual):
                break
            found.append(job)
            self._expected[job.account] = taken
        return found

    def charge(self, job: Job, seconds: float) -> None:
        """A request took so long."""
        account = job.account
        account.steps += account.turn != self._number
        job.turn = account.turn = self._number
        job.seconds += seconds
        self._taken[account] = self._taken.get(account, 0.0) + seconds
        if account not in self._long and self.over(account):
            self._long.add(account)
            self._surprised = True
            seconds = self._taken[account]
        if account in self._long:
            self._ahead += seconds
            self._debt += LEAD * seconds

    def expected(self, asking: Sequence[Job], seconds: Callable[[Job], float]) -> list[Job]:
        """Whom the models are asked for now that this is known; who wants far more than anybody knew waits a step."""
        more: dict[Account, float] = {}
        for job in asking:
            more[job.account] = more.get(job.account, 0.0) + seconds(job)
        return [job for job in asking if not self.over(job.account, more[job.account])]

    def over(self, account: Account, more: float = 0.0) -> bool:
        """Whether it has taken, or would take, far more of this step than was to be expected.

        Once somebody has, those of whom little is known yet wait for the next: they may be of the same kind.
        """
        if self._surprised and account.steps < YOUNG and account not in self._taken:
            return True
        return self._taken.get(account, 0.0) + more > 2 * max(self._usual, self._expected.get(account, 0.0))

    def end(self) -> None:
        """A step is over: all but those who take long have had the rest of it."""
        self._debt = max(0.0, self._debt - (perf_counter() - self._began - self._ahead))


def _light(parts: Sequence[float], start: float) -> Sequence[float]:
    """Of what accounts take in a step, least first, the parts that may all be in it beside `start`.

    A step with them takes no more than `SPREAD` times what it would if all were like the least of them, as many
    requests of a middling kind hold others up no less than a single large one. Who takes like the others always may.
    """
    least = next((seconds for seconds in parts if seconds), 0.0)
    total = 0.0
    for count, seconds in enumerate(parts):
        total += seconds
        alike = not count or seconds <= 2 * (total - seconds) / count
        if not alike and start + total > SPREAD * (start + (count + 1) * least) + BRIEF:
            return parts[:count]
    return parts
