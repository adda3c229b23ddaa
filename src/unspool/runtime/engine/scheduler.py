"""The scheduler: who joins, whose turn it is, who reads which chunk of its prompt, and who shares a forward."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core.asks import Draw, Look
from ...core.errors import BadRequest, UnspoolError
from .admission import Shares, admitted, refuse_impossible, refuse_outgrown, rows_asked
from .contracts import SupportsChunkedPrefill
from .job import LIVE, Account, Job, rows_of
from .model_runner import ModelRunner
from .turns import AllAtOnce, StepTimes, Turns


class Step(NamedTuple):
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

    def refuse_impossible(self, prompt: tuple[int, ...], room: int) -> None:
        """Refuse a request that can never be answered, whoever else is there."""
        refuse_impossible(self._runner.causal, prompt, room, self.most)

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

    def schedule(self, going: list[Job]) -> Step:
        """What to run, now that everybody has asked: prompts first get their chunks, the others share forwards."""
        prompts = {name: self._chunks(name) for name in self._runner.prefilling}
        groups: dict[tuple[str, str], list[Job]] = {}
        refused: list[tuple[Job, UnspoolError]] = []
        asking = [job for job in going if job.state == LIVE and not (job.answered or job.reading)]
        for job in self._turns.expected(asking, self._seconds):
            try:
                groups.setdefault(self._group(job), []).append(job)
            except UnspoolError as error:
                refused.append((job, error))
        reads = any(prompts.values())
        if reads:
            self._turns.read()
        mixed = reads or len(groups) > len({name for name, _ in groups})
        self._multi_step.plan(self._held, mixed)
        return Step(groups, prompts, refused)

    def _group(self, job: Job) -> tuple[str, str]:
        """Whom a request shares a forward with: the model it asks, and what for."""
        name = job.asks
        if name is None or name not in self._runner.models:
            known = ", ".join(self._runner.models) or "none"
            given = f"{job.ask!r:.60}" if name is None else f"a model called {name!r}"
            raise BadRequest(f"the method asks for {given}; this engine has: {known}")
        self._refuse_outgrown(job, name)
        if self._multi_step.takes(job, name):
            return name, "write"
        return name, {Look: "look", Draw: "draw"}.get(type(job.ask), "score")

    def _refuse_outgrown(self, job: Job, name: str) -> None:
        """Hold a request to what it may have of the cache, where it might need more: a search with many texts.

        They share much, so that few ever do. What is held is counted only when it might be too much.
        """
        if job.room < self.most:
            return
        rows = rows_asked(job.ask, job.texts)
        job.slots += rows
        if job.slots > job.room:
            held = self._runner.slots(job, name)
            if held is None:
                return
            job.slots = held + rows
        refuse_outgrown(job.slots, job.room)

    def _chunks(self, name: str) -> dict[Job, int]:
        """Who has to read before it is answered, and how many tokens now."""
        asking = [job for job in self.live if not job.answered and job.asks == name and not isinstance(job.ask, Look)]
        writing = sum(job.trace.forwards[name] > 0 for job in self.live)  # whatever they ask for just now
        forwards = self._multi_step.forwards(name, asking, self._held)
        found = chunks(self._runner.prefilling[name], name, asking, writing, forwards)
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
        self._times[name].add(sum(rows), seconds)
        each = self._times[name].each
        for job, count in zip(jobs, rows, strict=True):
            job.rows = count
            if not job.trace.forwards[name]:  # its prompt is among them, which is read once
                job.rows = rows_asked(job.ask, job.texts)
                self._turns.read()
            self._turns.charge(job, each * job.rows)

    def end(self) -> None:
        """The step is over."""
        self._turns.end()

    def _part(self, job: Job) -> float:
        """How much longer a step takes for a request, by its last round or, if it has asked already, by its ask."""
        if not job.answered:
            return self._seconds(job)
        forward = self._times[job.asks].each * job.rows if job.rows and job.asks else 0.0
        return job.host_seconds + forward

    def _seconds(self, job: Job) -> float:
        """How much longer a forward takes for what a request asks; who only writes on is in nobody's way."""
        name = job.asks or ""
        free = name not in self._runner.models or self._multi_step.takes(job, name)
        return 0.0 if free else self._times[name].each * rows_asked(job.ask, job.texts)


def chunks(
    model: SupportsChunkedPrefill, name: str, jobs: Sequence[Job], writing: int, forwards: int
) -> dict[Job, int]:
    """Which of these who ask a model must read before they can be answered, and how many tokens each reads now.

    While somebody writes with it (`writing` requests), `forwards` at a time, no more than the model's chunk per
    forward is read of all new prompts together, or a token for each who writes, if those are more: the oldest request
    first. Whose prompt ends within that is answered. Where nobody writes, nobody is held up, and all is read at once.
    """
    left = max(model.chunk, writing) * forwards
    found: dict[Job, int] = {}
    for job in jobs if writing else ():
        owed = 0 if job.trace.forwards[name] else model.owed(job.sessions[name])
        if owed > left:
            found[job], left = left, 0
        else:
            left -= owed
    return found
