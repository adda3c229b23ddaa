"""Turns: who takes long in every step waits in between, so that others go on at three quarters of their pace.

All who live together share the engine's steps, and a step takes as long as all its parts together: a beam of 64 beside
a text that needs one row would make every token of that text as slow as its own, and so would six searches that think
a little longer than it does. So requests whose part of a step is larger than that of the least take turns: they have a
quarter of the time, all of them together, and the others have the rest. What counts is how much longer steps take with
them, by the clock: their rows, what their decoders do between two asks, and whatever else they cause. Where requests
of several clients live together it is clients who take turns, each with all its requests, so that nobody has more of
the time by sending more of them. What a text contains does not depend on it, only when it comes.

One step of theirs is cut too: while others wait, a forward computes no more rows for those who take long than take as
long as a step without them, and the rest of what they asked in later ones; and a rule that has many rows to think about
gives way between them (`GiveWay`). Prompts are read a little at a time, for
which a client pays less than for what it writes. And where nobody waits, somebody may come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from .job import LONG, RECENT, Account, Job

PAUSE, PAUSES = 0.001, 60  # seconds, and how often, that those who take longer wait for one who has just gone
BRIEF = 0.001  # seconds of a step that nobody is stopped for in the middle of it
ALIKE = 1.5  # who takes no more than so many times what the least takes has its part in every step
LEAD = 3  # seconds that the others have for every second of those who take long
READ_LEAD = 2  # and for every second in which a client's prompts are read, which are read once
READ_STEPS = 3  # usual steps that a client's prompts may take of one, and be ahead
SOON = 0.004  # seconds of a forward that nobody's ask is cut for
ALONE, ALONE_READING = 0.25, 1.0  # and, to read in, where nobody is there who might come in the middle of it
ALONE_THINKING = 1.0  # seconds of a step in which decoders may go on there, before somebody who came is heard
BACK = 1.0  # seconds in which one who has just gone may be about to come back
WIDER = 4  # times the rows of late that are computed in one forward: what these take is only an estimate
YOUNG = 4  # steps in which requests show what they take: a search is wide only after its first tokens
FADING = 0.98  # what a forward counts for, each time that another has come
FLAT = 1e-3  # of the squares: what the sizes of forwards must differ by to tell what a row takes


@dataclass
class StepTimes:
    """How long forwards take by their rows: a straight line through the last few dozens of them."""

    count: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    slope: float | None = None  # when forwards of several sizes were last seen
    widest: float = 0.0  # the most rows of one, of late

    def add(self, rows: int, seconds: float) -> None:
        """Take note of a forward."""
        self.widest = max(rows, FADING * self.widest)
        self.count = FADING * self.count + 1
        self.rows = FADING * self.rows + rows
        self.seconds = FADING * self.seconds + seconds
        self.squares = FADING * self.squares + rows * rows
        self.products = FADING * self.products + rows * seconds
        spread = self.squares - self.rows**2 / self.count
        if spread > FLAT * self.squares:
            self.slope = max(0.0, (self.products - self.rows * self.seconds / self.count) / spread)

    @property
    def each(self) -> float:
        """Seconds that one more row takes; all of them, as long as forwards of one size are all that was ever seen."""
        if self.slope is not None:
            return self.slope
        return self.seconds / self.rows if self.rows else 0.0

    def within(self, seconds: float) -> float:
        """How many rows more take no longer than that, at least one; any number if nothing is known."""
        return max(1, min(WIDER * self.widest or math.inf, seconds / self.each if self.each else math.inf))


Party = Account | str  # who takes turns: requests, or clients by their names


class AllAtOnce:
    """Everybody takes part in every step: the requests are all of one account."""

    watches = False
    pauses = False
    accompanied = False

    def expected(self, asking: list[Job], seconds: Callable[[Job], float]) -> list[Job]:
        """All of them."""
        return asking

    def over(self, account: Account) -> bool:
        return False

    def most(self, account: Account) -> float:
        """No limit."""
        return math.inf

    def time_slice(self, account: Account) -> float:
        """As long as for anything that needs no model."""
        return LONG

    def readers(self, jobs: list[Job]) -> list[Job]:
        """The oldest first."""
        return jobs

    def granted(self, account: Account, seconds: float, first: bool) -> float:
        """All of them."""
        return seconds

    def charge(self, job: Job, seconds: float) -> None:
        """Nobody counts."""

    def read(self, account: Account, seconds: float) -> None:
        """Nobody looks."""

    def has_read(self, client: str, seconds: float) -> None:
        """Nobody looks."""

    def ahead(self, client: str) -> bool:
        """Nobody is."""
        return False

    def end(self) -> None:
        """Nothing is left to do."""


class Turns:
    """Chooses who takes part in a step, by what each took so far; where all are of one account, everybody does."""

    watches = True

    def __init__(self) -> None:
        self._debt = 0.0  # seconds that those who take long are ahead of the others
        self._usual = 0.0  # seconds that a step takes without them, of late; 0 before the first
        self._least = 0.0  # seconds that the one who takes least has of a step, of late; 0 before the first
        self._smallest: Party | None = None  # who that is
        self._several = -math.inf  # when there last were several clients
        self._by_client = False  # whether there are, so that it is they who take turns
        self._turn: dict[Party, int] = {}  # the step in which each last had one
        self._expected: dict[Party, float] = {}  # seconds of everybody in this step
        self._taken: dict[Party, float] = {}  # and what it was so far
        self._long: set[Party] = set()  # who takes longer than the others
        self._others = False  # whether anybody lives beside those
        self._beside = -math.inf  # when somebody last did
        self._ahead = 0.0  # seconds of this step that those had
        self._mixed = 0  # steps in a row with some of them
        self._patience = 0  # pauses that they make before they go on alone
        self.pauses = False  # whether this step is one
        self._surprised = False  # whether somebody took far longer than was to be expected
        self._reads = False  # whether prompts are read in this step, so that it tells nothing about others
        self._read: dict[str, float] = {}  # seconds that each client is ahead by its prompts
        self._grants: dict[str, float] = {}  # seconds in which those of each may still be read in this step
        self._began = 0.0
        self._number = 0  # of this step

    def begin(self, wanting: Sequence[Job], seconds: Callable[[Job], float], live: Iterable[Job]) -> list[Job]:
        """Who takes part in a step, of those who want to, by the seconds each takes of it."""
        self._began, self._ahead, self._number = perf_counter(), 0.0, self._number + 1
        self._surprised = self._reads = False
        self._taken.clear()
        self._grants.clear()
        self._long.clear()
        accounts = dict.fromkeys(job.account for job in live)
        if len({account.client for account in accounts}) > 1:
            self._several = self._began
        self._by_client = self._began - self._several < BACK
        self._expected = dict.fromkeys(map(self._party, accounts), 0.0)
        self._turn = {party: self._turn.get(party, 0) for party in self._expected}
        self._read = {client: ahead for client, ahead in self._read.items() if ahead > 0}
        parts = {job: seconds(job) for job in wanting}
        self._others, self.pauses = False, self._waits(parts)
        if self.pauses:
            return []
        if len(self._expected) < 2:
            return list(wanting)
        for job, part in parts.items():
            self._expected[self._party(job.account)] += part
        fair = ALIKE * self._least_of_late()
        self._long.update(party for party, seconds in self._expected.items() if seconds > fair)
        self._others = len(self._long) < len(self._expected)
        self._beside = self._began if self._others else self._beside
        return [job for job in parts if self._party(job.account) not in self._long] + self._portion(parts)

    def _party(self, account: Account) -> Party:
        return account.client if self._by_client else account

    def _waits(self, parts: Mapping[Job, float]) -> bool:
        """Whether to wait for one who takes little and has just gone: its next text would wait for a whole step.

        So does a disk that waits before it seeks elsewhere (anticipatory scheduling). It is only done where the step
        would take longer than the wait.
        """
        if self._smallest in self._expected:
            self._patience = PAUSES
            return False
        if min(parts.values(), default=0.0) <= max(PAUSE * PAUSES, ALIKE * self._least):
            return False
        self._patience -= 1
        return self._patience >= 0

    def _least_of_late(self) -> float:
        """What the one who takes least takes, or took if it has just gone: its next text may be about to come."""
        known = {party: seconds for party, seconds in self._expected.items() if seconds}
        back = self._smallest in self._expected and self._smallest not in known  # with a text that is yet to begin
        if known and not back:
            party = min(known, key=lambda one: known[one])
            if self._smallest in self._expected or known[party] <= self._least or not self._least:
                self._smallest, self._least = party, known[party]
            else:
                self._least += (known[party] - self._least) / RECENT
        return self._least

    def _portion(self, parts: Mapping[Job, float]) -> list[Job]:
        """Of those who take long, who goes now: whose turns are longest ago, as many as are in nobody's way."""
        if self._others and (self._debt > 0 or self._mixed == RECENT):  # now and then a step shows what is usual
            return []
        long = [job for job in parts if self._party(job.account) in self._long]
        long.sort(key=lambda job: (self._turn[self._party(job.account)], job.turn))
        found: list[Job] = []
        taken: dict[Party, float] = {}
        for job in long:
            if found and sum(taken.values()) + parts[job] > self._usual / LEAD:
                break
            found.append(job)
            party = self._party(job.account)
            self._expected[party] = taken[party] = taken.get(party, 0.0) + parts[job]
        return found

    def charge(self, job: Job, seconds: float) -> None:
        """A request took so long."""
        account, party = job.account, self._party(job.account)
        account.steps += account.turn != self._number
        job.turn = account.turn = self._turn[party] = self._number
        self._taken[party] = self._taken.get(party, 0.0) + seconds
        if len(self._expected) > 1 and party not in self._long and self.over(account):
            self._long.add(party)
            self._surprised = True
            seconds = self._taken[party]
        if party in self._long:
            self._ahead += seconds

    def expected(self, asking: Sequence[Job], seconds: Callable[[Job], float]) -> list[Job]:
        """Whom the models are asked for now that this is known; who wants far more than anybody knew waits a step."""
        more: dict[Party, float] = {}
        for job in asking:
            party = self._party(job.account)
            more[party] = more.get(party, 0.0) + seconds(job)
        return [job for job in asking if not self.over(job.account, more[self._party(job.account)])]

    def over(self, account: Account, more: float = 0.0) -> bool:
        """Whether it has taken, or would take, far more of this step than was to be expected.

        Once somebody has, those of whom little is known yet wait for the next: they may be of the same kind. One who
        is alone goes on in the next step too, and models are asked once all its texts have come so far.
        """
        party = self._party(account)
        if len(self._expected) < 2:
            return self._taken.get(party, 0.0) > ALONE_THINKING
        if self._surprised and account.steps < YOUNG and party not in self._taken:
            return True
        taken = self._taken.get(party, 0.0) + more
        return taken > 2 * max(BRIEF, self._usual, self._least, self._expected.get(party, 0.0))

    @property
    def accompanied(self) -> bool:
        """Whether anybody lives beside those who take long, or has just gone and may come back."""
        return self._others or self._began - self._beside < BACK

    def most(self, account: Account) -> float:
        """Seconds of one forward that a request may have now: as long as a step takes without those who take long."""
        if self._others and self._party(account) not in self._long:
            return math.inf
        return max(SOON, self._usual - self._taken.get(self._party(account), 0.0)) if self.accompanied else ALONE

    def time_slice(self, account: Account) -> float:
        """Seconds that a decoder may go on before it gives way: half as long as a step without those who take long.

        One that needs no model does so in every step: nobody's tokens should then come half as often.
        """
        rest = self._usual / 2 - self._taken.get(self._party(account), 0.0)
        return min(LONG, max(SOON, rest)) if self.accompanied else LONG

    def readers(self, jobs: Sequence[Job]) -> list[Job]:
        """Who reads first: the clients of whose prompts least was read, each in the order of their coming."""
        return sorted(jobs, key=lambda job: self._read.get(job.account.client, 0.0))

    def granted(self, account: Account, seconds: float, first: bool) -> float:
        """In how many of these seconds a prompt may be read in this step, beside others; the `first` need not wait."""
        if not self._by_client:
            return seconds
        client = account.client
        left = self._grants.get(client, self._burst if first or not self.ahead(client) else 0.0)
        self._grants[client] = max(0.0, left - seconds)
        return min(left, seconds)

    def read(self, account: Account, seconds: float) -> None:
        """A prompt is read in this step, which takes so long."""
        self._reads = True
        self.has_read(account.client, seconds)

    def has_read(self, client: str, seconds: float) -> None:
        """So long was spent on what a client sent, in a step or between two."""
        self._read[client] = self._read.get(client, 0.0) + (1 + READ_LEAD) * seconds

    def ahead(self, client: str) -> bool:
        """Whether so much was read for a client that the others go on first."""
        return self._by_client and self._read.get(client, 0.0) > self._burst

    @property
    def _burst(self) -> float:
        """Seconds that the prompts of a client may take of one step, and be ahead."""
        return READ_STEPS * max(SOON, self._usual)

    def end(self) -> None:
        """A step is over: all but those who take long have had the rest of it.

        Those are charged for what it took more than steps without them do, if that is more than what they were seen
        to take: it is they who make it longer, whatever the reason.
        """
        spent, ahead = perf_counter() - self._began, self._ahead
        for client in self._read:
            self._read[client] -= spent
        if not (self._taken or self._reads or self.pauses):  # nobody did anything, so nobody is waited for
            self._debt, self._read = 0.0, {}
        without = self._long.isdisjoint(self._taken)
        self._mixed = 0 if without else min(self._mixed + 1, RECENT)
        if self._taken and not self._reads:
            if without:
                self._usual += self._drift(spent) if self._usual else spent
            elif self._usual:
                ahead = max(ahead, spent - self._usual)
                self._usual = min(self._usual, spent)
        if self._others:
            self._debt = max(0.0, self._debt + LEAD * ahead - (spent - ahead))

    def _drift(self, spent: float) -> float:
        """How far the usual moves for a step: what lasts longer once, by chance, moves it little."""
        return (spent - self._usual) / (RECENT if spent > self._usual else 2)
