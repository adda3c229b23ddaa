"""The engine: many decoders of any kind in one batch, each at its own pace and with the same tokens as alone.

A step of it reads:

1. Schedule. Who waits is let in where there is room, and those whose turn it is go on.
2. Emit. Each decoder goes on with the answer it has, hands out tokens, and asks a model again.
3. Run. All who ask one model for the same thing share a forward; long prompts are read a chunk at a time, and what is
   too large for the others to wait for is computed in parts.
4. Verify. What was scored is verified by each request's own rule, unless its model has done that on the device.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from ...core.asks import (
    TARGET,
    Begin,
    Check,
    Done,
    Draw,
    Emit,
    Fetch,
    GiveWay,
    Keep,
    Price,
    Score,
    Scores,
    Share,
    Write,
    Written,
)
from ...core.chance import Chance
from ...core.claim import Method
from ...core.cost import FREE, Cost
from ...core.errors import UnspoolError, as_error
from ...core.stop import Stop
from ...core.trace import Trace
from ...core.warp.warp import Same, Warp
from .. import engine as engines
from .contracts import Model
from .job import ENDED, LONG, TURN, Account, Job, PartialAnswer, forwards_of, refuse_endless, rows_of
from .model_runner import ModelRunner, refuse_large
from .scheduler import Scheduler
from .turns import PAUSE

if TYPE_CHECKING:
    from .overlap import Overlap


class Engine:
    """Answers the asks of many decoders with one forward per model and step.

    Requests join by `submit` and leave when they end, fail or are cancelled, at any step; a failure is the request's
    own. A request is refused at once if it could never be answered; one account may hold a `share` of the cache and of
    the `places` (see `Scheduler`). `price` tells what a forward of a model costs, for those that ask; drafts of a full
    batch are priced as such, which ends speculation where it no longer pays. A request ends when its time is over,
    whatever it does, and fails if it asks for more than `rows` rows of a model in one step, or goes on and on without
    asking any.
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        price: Callable[[str], Cost] = lambda _: FREE,
        rows: float = math.inf,
        places: float = math.inf,
        share: float = 1.0,
    ) -> None:
        self._runner, self._rows = ModelRunner(models, price), rows
        self.scheduler = Scheduler(self._runner, places, share)
        self._overlap: Overlap | None = None  # begun by the first who drafts while the target checks

    @property
    def models(self) -> dict[str, Model]:
        """The models by the names that asks give them."""
        return self._runner.models

    @property
    def waiting(self) -> deque[Job]:
        """Requests that have not been let in."""
        return self.scheduler.waiting

    @property
    def live(self) -> dict[Job, None]:
        """Requests that have, in the order of their coming."""
        return self.scheduler.live

    @property
    def most(self) -> float:
        """How many tokens of cache one account may hold, if there is a share for that."""
        return self.scheduler.most

    def submit(
        self,
        method: Method,
        text: Sequence[int],
        chance: Chance,
        warp: Warp | None = None,
        stop: Stop | None = None,
        room: int = 0,
        laws: bool = True,
        patience: float = math.inf,
        account: Account | None = None,
        logprobs: int | None = None,
    ) -> Job:
        """Queue a request; without an account it shares one with all others that have none.

        `room` is how many tokens it may need at most; without `laws` nobody looks at the laws of what is emitted, so
        that a model may write several tokens before it looks up: as many as it can in `patience` seconds. With
        `logprobs` they look at what is reported of them: the probability of each token, and of so many best.
        """
        prompt, stop = tuple(text), stop or Stop()
        self._runner.refuse_impossible(prompt, room, self.scheduler.most)
        decoding = method(prompt, chance, warp or Same(), stop)
        job = Job(decoding, prompt, max(room, len(prompt)), Trace(prompt=len(prompt)), began=perf_counter())
        job.laws, job.logprobs, job.patience, job.stop = laws, logprobs, patience, stop
        self.scheduler.queue(job, account)
        return job

    def cancel(self, job: Job) -> None:
        """End a request now and free all it holds. Tokens it has emitted stay with the job."""
        if job.state != ENDED:
            self._end(job, Done((), "cancelled"), None)

    def step(self) -> bool:
        """Advance every request whose turn it is by one forward; False when nothing is left to do."""
        self.admit()
        going = self.scheduler.begin()
        if self.scheduler.pauses:
            sleep(PAUSE)
        self._emit(going)
        self._share([job for job in going if isinstance(job.ask, Share)])
        step = self.scheduler.schedule(going)
        for job, error in step.refused:
            self._end(job, None, error)
        for (name, _), jobs in step.groups.items():
            self._run(name, jobs)
        for name, prompts in step.prompts.items():
            self._read(name, {job: count for job, count in prompts.items() if count})
        self.scheduler.end()
        return bool(self.live or self.waiting)

    def run(self) -> None:
        """Step until every request has ended."""
        while self.step():
            pass

    def admit(self) -> None:
        """Let in what there is room for; every step begins with it."""
        for job in self.scheduler.admit():
            self._join()
            try:
                self._runner.open(job)
            except BaseException as error:  # its own, as every failure of one request
                self._end(job, None, as_error(error))

    def _end(self, job: Job, done: Done | None, error: Exception | None) -> None:
        if self._overlap is not None:
            self._overlap.join()
            self._overlap.drop(job)
        job.state, job.done, job.error = ENDED, done, error
        job.trace.seconds_total = perf_counter() - job.began
        self.scheduler.remove(job)
        job.decoding.close()
        if job.looking is not None:
            job.looking.close()
        for session in job.sessions.values():
            session.close()
        job.sessions, job.ask, job.reply, job.looking = {}, None, None, None

    def _join(self, name: str | None = None) -> None:
        """Wait until nobody else uses a model, or any of them."""
        if self._overlap is not None:
            self._overlap.join(name)

    def _out_of_time(self, job: Job) -> None:
        try:
            self._end(job, job.out_of_time(), None)
        except BaseException as error:
            self._end(job, None, as_error(error))

    # ---- emit

    def _emit(self, going: list[Job]) -> None:
        for job in [job for job in self.live if job.late and job not in going]:
            self._out_of_time(job)
        for job in going:
            if job.answered and self.scheduler.may_go_on(job):
                self._advance(job)

    def _share(self, asking: list[Job]) -> None:
        """Tell those that have drafted how much of it is checked; then they go on to ask for that."""
        if asking:
            cost = self._runner.price(TARGET, asking[0], 1) or FREE
            for job, count in engines.sharing.by_owner(asking, cost):
                job.reply = count
                self._advance(job, sharing=False)

    def _advance(self, job: Job, sharing: bool = True) -> None:
        """Run a decoder until it needs a model, a share of the drafts, or until others should have their turn."""
        trace, after_check = job.trace, isinstance(job.ask, (Check, Write))
        began = perf_counter()
        job.begin()
        resting = False  # it gives way to others and goes on at the next step, without an answer
        try:
            while not resting:
                job.ask = job.decoding.send(job.reply)
                if isinstance(job.ask, GiveWay):
                    job.reply, job.given = None, job.given + 1
                    resting = perf_counter() - began > self.scheduler.time_slice(job)
                    continue
                trace.asks += 1
                if self._rows < math.inf:
                    refuse_large(job.ask, job.texts, self._rows)
                match job.ask:
                    case Emit():
                        job.emit(job.ask)
                        job.reply = None
                    case Write() | Check() | Score():
                        break
                    case Begin():
                        self._overlap = self._overlap or engines.overlap.Overlap(self.models)
                        self._overlap.begin(job, job.ask)
                        job.reply = None
                    case Fetch():
                        job.reply = None if self._overlap is None else self._overlap.fetch(job)
                    case Keep(tree, nodes, extra, by):
                        self._join()
                        for name, session in job.sessions.items():
                            if by is None or by == name:
                                session.keep(tree, nodes, extra)
                        job.texts = len(nodes) if by in (None, TARGET) else job.texts
                        job.reply, after_check = None, False
                    case Price(by):
                        job.reply = self._runner.price(by, job, len(self.live))
                    case Share(values, most) if not sharing:  # again in one step: it has what it brings
                        job.reply = min(len(values), most)
                    case Draw() if not self._runner.draws(job.ask):
                        job.reply = None
                    case _:
                        break
                job.silent += 1
                resting = job.silent % TURN == 0 or perf_counter() - began > LONG
            if resting:
                refuse_endless(job)
                job.ask = None
            else:
                job.silent, job.given, job.answered = 0, 0, False
            if job.late:
                self._out_of_time(job)
        except StopIteration as end:
            self._end(job, end.value, None)
        except BaseException as error:
            self._end(job, None, as_error(error))
        spent = perf_counter() - began
        job.begin_round()
        self.scheduler.charge(job, spent)
        if after_check:
            trace.seconds_rule += spent
        else:
            trace.seconds_draft += spent
        if job.state == ENDED:  # what its end took is in there
            trace.seconds_total = perf_counter() - job.began

    # ---- run

    def _read(self, name: str, chunks: dict[Job, int]) -> None:
        began = perf_counter()
        self._join(name)
        try:
            if chunks:
                self._runner.read(name, chunks)
        except BaseException as error:
            failure = as_error(error)
            for job, count in chunks.items():  # whose prompt it is that cannot be read
                if len(chunks) == 1:
                    self._end(job, None, failure)
                else:
                    self._read(name, {job: count})
            return
        spent = perf_counter() - began
        self.scheduler.has_read(chunks, spent)
        for job, count in chunks.items():
            job.trace.rows[name] += count
            job.trace.seconds_forward += spent

    def _run(self, name: str, jobs: list[Job]) -> None:
        """One forward of a model for all these, and what follows from it for each."""
        began = perf_counter()
        self._join(name)
        try:
            replies = self._runner.answers(name, jobs)
        except BaseException as error:
            failure = as_error(error)
            if len(jobs) == 1:
                self._end(jobs[0], None, failure)
                return
            for job in jobs:  # find the one whose ask cannot be answered; the others go on
                self._run(name, [job])
            return
        spent = perf_counter() - began
        self.scheduler.ran(name, jobs, replies, spent)
        for job, reply in zip(jobs, replies, strict=True):
            job.trace.forwards[name] += forwards_of(reply)
            job.trace.rows[name] += rows_of(reply)
            if name == TARGET:
                job.trace.seconds_forward += spent
            else:
                job.trace.seconds_draft += spent
            if not isinstance(reply, PartialAnswer):
                self._verify(job, name, reply)

    # ---- verify

    def _verify(self, job: Job, name: str, reply: Any) -> None:
        """Turn a model's reply into the answer that the decoder waits for; what was scored for a check is verified."""
        if isinstance(reply, UnspoolError):
            self._end(job, None, reply)
            return
        if isinstance(reply, Written):  # the model has kept its own
            job.append(reply.tokens, but=name)
            job.reply, job.answered = reply, True
            return
        check = job.check
        if check is not None and isinstance(reply, Scores):
            began = perf_counter()
            try:
                reply = check.answer(reply)
            except BaseException as error:
                self._end(job, None, as_error(error))
                return
            spent = perf_counter() - began
            job.trace.seconds_rule += spent
            self.scheduler.charge(job, spent)
        job.answered = True
        job.reply = job.written(reply) if isinstance(job.ask, Write) else reply
