"""The scheduler: who joins, whose turn it is, who reads which chunk of its prompt, and who shares a forward."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

from ...core.asks import TARGET, Draw, Look
from ...core.errors import METHOD, BadRequest, UnspoolError
from .job import ENDED, LIVE, Account, Job, Ledger, Shares, rows_of
from .model_runner import ModelRunner, refuse_outgrown, rows_asked
from .turns import ALONE, ALONE_READING, AllAtOnce, StepTimes, Turns


def admitted(waiting: deque[Job], live: Collection[Job], tokens: Shares, places: Shares) -> tuple[list[Job], bool]:
    """Take those out of the queue who may join now, and tell whether somebody is held back who could.

    `tokens` of cache and `places` are what requests share, by their accounts: see `Shares`. A prompt that another
    request of the same owner is just reading is waited for, and then shared. Clients take turns: see `_by_turns`.
    """
    if not waiting:
        return [], False
    came: list[Job] = []
    read = {_prompt(job) for job in live if job.trace.forwards[TARGET]}
    reading = set(map(_prompt, live)) - read
    ledger = Ledger(tokens, places)
    for job in live:
        ledger.take(job.account, job.room)
    shut, held = {False: False, True: False}, False  # whether the line of the small, of the large, goes no further
    for job in _by_turns(waiting, live):
        if job.after is not None and job.after.state != ENDED:
            continue
        large = ledger.large(job.account)
        if shut[large] or not ledger.allows(job.account, job.room, shut[True]):
            shut[large] = True
            if all(shut.values()):
                break
            continue
        ledger.take(job.account, job.room)
        if (prompt := _prompt(job)) in reading:
            held = True
            continue
        if prompt not in read:
            reading.add(prompt)
        came.append(job)
    if came:
        gone = set(came)
        left = [job for job in waiting if job not in gone]
        waiting.clear()
        waiting.extend(left)
    return came, held


def _by_turns(waiting: Iterable[Job], live: Iterable[Job]) -> Iterator[Job]:
    """Who is let in first: of the clients that wait, the one with the fewest texts inside, so that no queue is long.

    Each client's own stand in the order of their coming, and so do clients who have equally many. A text that is tried
    counts as one inside.
    """
    lines: dict[str, deque[tuple[int, Job]]] = {}
    for number, job in enumerate(waiting):
        lines.setdefault(job.account.client, deque()).append((number, job))
    if len(lines) == 1:
        (line,) = lines.values()
        yield from (job for _, job in line)
        return
    inside = Counter(job.account.client for job in live)
    turns = [(inside[client], line[0][0], client) for client, line in lines.items()]
    heapify(turns)
    while turns:
        texts, _, client = turns[0]
        line = lines[client]
        yield line.popleft()[1]
        if line:
            heapreplace(turns, (texts + 1, line[0][0], client))
        else:
            heappop(turns)


def _prompt(job: Job) -> tuple[str, int]:
    """The same for those who can share what they read."""
    return job.account.owner, job.key


class ScheduledStep(NamedTuple):
    """What is run in one step: requests by the model they ask and what for, and chunks of prompts by model."""

    groups: dict[tuple[str, str], list[Job]]
    prompts: dict[str, dict[Job, int]]
    refused: list[tuple[Job, UnspoolError]]


class Scheduler:
    """Keeps the queue and decides what is run in every step.

    A request is admitted when the cache has room for all it may need; one account may hold a `share` of the cache and
    of the `places` (see `Shares`). Where requests of several clients live together, or several of one, those who take
    long in every step take turns (see `Turns`). A long prompt is read in chunks while others write.
    """

    def __init__(self, runner: ModelRunner, places: float, share: float) -> None:
        self._runner, self._multi_step = runner, runner.multi_step
        self._tokens, self._places = Shares(runner.room, share), Shares(min(runner.max_sequences, places), share)
        self.most = self._tokens.most if share < 1 else math.inf  # tokens of cache that one account may hold
        self.waiting: deque[Job] = deque()
        self.live: dict[Job, None] = {}  # in the order of their coming
        self._own = Account()
        self._changed = False  # whether somebody came or went since the queue was looked through
        self._held = False  # whether somebody waits for a prompt to be read
        self._turns: Turns | AllAtOnce = AllAtOnce()
        self._times = {name: StepTimes() for name in runner.models}

    # ---- joining and leaving

    def queue(self, job: Job, account: Account | None) -> None:
        """Let a request wait; from the first account on, requests take turns."""
        job.account = account or self._own
        if account is not None and not self._turns.watches:
            self._turns = Turns()
        job.account.room += job.room
        job.account.texts += 1
        self.waiting.append(job)
        self._changed = True

    def admit(self) -> list[Job]:
        """Let in those whom there is room for."""
        if not (self._changed or self._held):
            return []
        self._changed = False
        came, self._held = admitted(self.waiting, self.live, self._tokens, self._places)
        for job in came:
            job.state = LIVE
            self.live[job] = None
        return came

    def remove(self, job: Job) -> None:
        """Forget a request that has ended, wherever it is."""
        if job in self.live:
            del self.live[job]
        else:
            self.waiting.remove(job)
        job.account.room -= job.room
        job.account.texts -= 1
        self._changed = True

    # ---- a step

    def begin(self) -> list[Job]:
        """Whose turn it is, of those who need not read."""
        wanting = [job for job in self.live if not job.reading]
        if isinstance(self._turns, AllAtOnce):
            return wanting
        return self._turns.begin(wanting, self._part, self.live)

    @property
    def pauses(self) -> bool:
        """Whether nobody goes in this step, though some could: see `Turns`."""
        return self._turns.pauses

    def may_go_on(self, job: Job) -> bool:
        """Whether a request may go on in this step, or has had more of it than was to be expected."""
        return not self._turns.over(job.account)

    def time_slice(self, job: Job) -> float:
        """Seconds that its decoder may go on at a time, where it is ready to give way."""
        return self._turns.time_slice(job.account)

    def schedule(self, going: list[Job]) -> ScheduledStep:
        """What to run, now that everybody has asked: prompts first get their chunks, the others share forwards."""
        self._multi_step.begin(alone=len(self.live) == 1 and not self.waiting)
        prompts = {name: self._chunks(name, going) for name in self._runner.prefilling}
        groups: dict[tuple[str, str], list[Job]] = {}
        refused: list[tuple[Job, UnspoolError]] = []
        asking = [job for job in going if job.state == LIVE and not (job.answered or job.reading)]
        for job in self._turns.expected(asking, self._seconds_now):
            try:
                name = job.asks or ""
                job.cut, job.span = self._rows_now(job, name), self._span_now(job, name)
                groups.setdefault(self._group(job), []).append(job)
            except UnspoolError as error:
                refused.append((job, error))
        mixed = any(prompts.values()) or len(groups) > len({name for name, _ in groups})
        self._multi_step.plan(self._held, mixed)
        return ScheduledStep(groups, prompts, refused)

    def _group(self, job: Job) -> tuple[str, str]:
        """Whom a request shares a forward with: the model it asks, and what for."""
        name = job.asks
        if name is None or name not in self._runner.models:
            known = ", ".join(self._runner.models) or "none"
            given = f"{job.ask!r:.60}" if name is None else f"a model called {name!r}"
            how = f". Load one with {name}=…, in Python or as --{name}" if name in ("draft", "small") else ""
            raise BadRequest(f"the method asks for {given}; this engine has: {known}{how}", METHOD)
        self._refuse_outgrown(job, name)
        if self._multi_step.takes(job, name):
            return name, "write"
        kind = {Look: "look", Draw: "draw"}.get(type(job.ask), "score")
        return name, f"{kind} in stages" if job.span else kind

    def _refuse_outgrown(self, job: Job, name: str) -> None:
        """Hold a request to what it may have of the cache, where it might need more: a search with many texts.

        They share much, so that few ever do. What is held is counted only when it might be too much.
        """
        if job.room < self.most or job.begun:  # then it was counted with the first part
            return
        rows = rows_asked(job.ask, job.texts)
        job.slots += rows
        if job.slots > job.room:
            held = self._runner.slots(job, name)
            if held is None:
                return
            job.slots = held + rows
        refuse_outgrown(job.slots, job.room)

    def _chunks(self, name: str, going: Sequence[Job]) -> dict[Job, int]:
        """Who has to read before it is answered, and how many tokens now.

        While somebody writes with the model it is no more than its chunk per forward of all new prompts together, or a
        token for each who writes, if those are more. Where nobody does, nobody is held up, and all is read at once, or
        as much as takes so long that who comes in between need not wait for longer.
        """
        asking = [job for job in self.live if not job.answered and job.asks == name and not isinstance(job.ask, Look)]
        writing = sum(job.trace.forwards[name] > 0 for job in self.live)  # whatever they ask for just now
        model, times = self._runner.prefilling[name], self._times[name]
        most: float = max(model.chunk, writing) * self._multi_step.forwards(name, asking, self._held)
        if not writing and not self._turns.accompanied:
            watched = self._turns.watches and not self._runner.has_device(name)
            most = max(model.chunk, times.within(ALONE_READING) if times.each else 0) if watched else math.inf
        idle = not (going or self.pauses)

        def granted(job: Job, rows: int, first: bool) -> int:
            if not (times.each and rows):
                return rows
            seconds = self._turns.granted(job.account, times.each * rows, first and idle)
            return int(seconds / times.each + 1e-6)

        found = self._runner.chunks(name, self._turns.readers(asking), most, granted)
        for job in asking:
            job.reading = job in found
        return found

    # ---- what a step took

    def charge(self, job: Job, seconds: float) -> None:
        """The decoder of a request, or its verification, took so long."""
        job.seconds += seconds
        self._turns.charge(job, seconds)

    def ran(self, name: str, jobs: list[Job], replies: Sequence[Any], seconds: float) -> None:
        """A forward that gave these answers took so long; those who only write on are in nobody's way."""
        if not self._turns.watches or any(self._multi_step.takes(job, name) for job in jobs):
            return
        rows = [rows_of(reply) for reply in replies]
        if any(job.span for job in jobs):  # each by itself, for its time
            for job, count in zip(jobs, rows, strict=True):
                job.rows = count or job.rows
                self._turns.charge(job, seconds / len(jobs))
            return
        self._times[name].add(sum(rows), seconds)
        each = self._times[name].each
        for job, count in zip(jobs, rows, strict=True):
            if not job.trace.forwards[name]:  # its prompt is among them, which is read once
                prompt = max(0, count - rows_asked(job.ask, job.texts))
                count -= prompt
                if prompt:
                    self._turns.read(job.account, each * prompt)
            job.rows = job.rows + count if job.begun else count
            job.begun = job.cut > 0
            self._turns.charge(job, each * count)

    def has_read(self, chunks: Mapping[Job, int], seconds: float) -> None:
        """So many tokens of prompts were read, which took so long."""
        total = sum(chunks.values())
        for job, count in chunks.items():
            self._turns.read(job.account, seconds * count / total)

    def may_begin(self, client: str) -> bool:
        """Whether a client is not so far ahead, by its prompts and what it had prepared, that others go first."""
        return not self._turns.ahead(client)

    def has_begun(self, client: str, seconds: float) -> None:
        """A request of a client was prepared between two steps, which took so long."""
        self._turns.has_read(client, seconds)

    def end(self) -> None:
        """The step is over."""
        self._turns.end()

    def _part(self, job: Job) -> float:
        """How much longer a step takes for a request, by its last round or, if it has asked already, by its ask."""
        if not job.answered:
            return self._seconds(job)
        forward = self._times[job.asks].each * job.rows if job.rows and job.asks else 0.0
        return job.host_seconds + forward

    def _rows_now(self, job: Job, name: str) -> int:
        """How many rows of what a request asks are computed in this step, if others should not wait for all; else 0."""
        seconds = self._turns.most(job.account)
        if seconds == math.inf or not self._runner.cuts(job, name) or isinstance(job.ask, Look):
            return 0
        most = self._times[name].within(seconds)
        read = job.trace.forwards[name] or seconds >= ALONE  # or the end of its prompt is among them
        if most == math.inf or (read and rows_asked(job.ask, job.texts) <= most):
            return 0
        return int(most) if self._runner.rows(job, name) > most else 0

    def _span_now(self, job: Job, name: str) -> float:
        """How many seconds of a look are spent in this step, if others should not wait for all of it; else 0."""
        if not isinstance(job.ask, Look) or not self._runner.cuts(job, name):
            return 0.0
        seconds = self._turns.most(job.account)
        rows = rows_asked(job.ask, job.texts)
        fits = seconds == math.inf or rows <= self._times[name].within(seconds)
        return 0.0 if fits and job.looking is None else seconds

    def _seconds_now(self, job: Job) -> float:
        """The same of what is computed in this step."""
        seconds = self._seconds(job)
        return min(seconds, self._turns.most(job.account)) if self._runner.cuts(job, job.asks or "") else seconds

    def _seconds(self, job: Job) -> float:
        """How much longer a forward takes for what a request asks; who only writes on is in nobody's way."""
        name = job.asks or ""
        free = name not in self._runner.models or self._multi_step.takes(job, name)
        return 0.0 if free else self._times[name].each * rows_asked(job.ask, job.texts)
