"""The worker: one thread that owns the model and steps one engine for everybody."""

from __future__ import annotations

import sys
import traceback
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Condition, Thread
from time import monotonic, perf_counter

from ...api.lm import LM
from ...core.asks import TARGET
from ...core.errors import Panic, RankLost, UnspoolError, as_error
from ...core.trace import Trace
from ...rules.constrain.matcher import tongue
from ...runtime.engine.contracts import DefersCapture, device_of
from ...runtime.engine.engine import Engine
from .compile_queue import CompileQueue
from .limits import Limits
from .server_log import log, places
from .server_request import Failed, Queue, ServerRequest

BEGUN, BEGINNING = 4, 0.001  # requests that are begun before the next step, and seconds after which no other one is
PATIENCE = 60.0  # seconds beyond its grace in which a thread may finish the forward it is in
GIVEN_UP = "the server is shutting down and gave up this request; send it again"


class ShuttingDown(UnspoolError):
    """The server takes no more requests, or gave up the one it had."""


class Worker:
    """Runs requests, as many at a time as `limits.parallel` texts and the cache allow; small ones may pass large ones.

    Every request is handed to the engine as soon as it has come, and waits there to be let in (see `Shares`).
    `submit` and `drop` may be called from any thread and never wait for a forward. Grammars are compiled beside it (see
    `CompileQueue`), so that nobody's text waits for another's schema; all else about the model happens in the
    worker's own thread: tokens, masks, forwards. What goes wrong with a request is told to that request alone;
    what goes wrong with the engine itself ends the requests inside it, and a new engine takes the next. A model that
    has lost a rank is gone for good: from then on nobody is let in. So is one whose thread has
    `died`. A thread cannot be ended from outside, so that one
    which hangs in a rule or a forward is known only by `silent`, and only the end of the process helps.
    """

    def __init__(self, lm: LM, limits: Limits) -> None:
        self.lm, self.limits = lm, limits
        self.engine = self._made()
        self.waiting = Queue(limits.queue)
        self.live: dict[ServerRequest, None] = {}
        self.total = Trace()  # of all texts that have ended, one way or another
        self.lost: str | None = None  # why the model is gone
        self.died = False  # whether the thread has ended though nobody told it to
        self._new: list[ServerRequest] = []  # of those who wait, who is not in the engine yet
        self._begun: dict[ServerRequest, None] = {}  # and who is
        self._last: dict[str, int] = {}  # of the clients who wait, when each last had a request begun, by its number
        self._dropped: list[ServerRequest] = []
        self._until: float | None = None  # when to give up what is left; None: not closing
        self._turn = Condition()
        self._idle, self._beat = True, monotonic()  # whether the thread waits for work, and when it last came round
        device = device_of(lm.model)
        self._capturing = device if isinstance(device, DefersCapture) else None  # records steps while nobody waits
        self.fitting = CompileQueue(limits.queue, limits.compile_seconds)
        self._thread = Thread(target=self._run, name="unspool-worker", daemon=True)

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self.alive and self._until is None and self.lost is None

    @property
    def silent(self) -> float:
        """Seconds since the thread last came round; 0 while it has nothing to do."""
        return 0.0 if self._idle or not self.alive else monotonic() - self._beat

    @property
    def trouble(self) -> str | None:
        """Why requests are not answered, in words; None if they are."""
        if self.lost is not None:
            return self.lost
        if (silent := self.silent) > self.limits.stalled:
            long = f"for {silent:.0f} seconds, more than {self.limits.stalled:g}"
            return f"the worker has not come round {long}: it hangs in a method or a forward"
        return None if self.ready else "it starts, or shuts down"

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def reserved(self) -> int:
        """Tokens of cache that the texts being written may need."""
        return sum(job.room for job in list(self.engine.live))

    def start(self) -> None:
        """Begin to take requests."""
        self._thread.start()

    def submit(self, request: ServerRequest) -> None:
        """Hand over a request; Busy if too many wait already."""
        with self._turn:
            self._refuse_unready()
            self.waiting.add(request)
            self._new.append(request)
            self._turn.notify()

    def fit(self, request: ServerRequest) -> Future[None]:
        """Fit the form of a request that is to be handed over; Busy if too many wait for that."""
        with self._turn:
            self._refuse_unready()
        request.fitted = self.fitting.submit(request, partial(request.fit, self.lm), request.size)
        return request.fitted

    def prepare(self) -> None:
        """Have ready what the first odd text or grammar needs, in the background: else everybody would wait for it."""
        Thread(target=self._prepare, name="unspool-prepare", daemon=True).start()

    def drop(self, request: ServerRequest) -> None:
        """Nobody wants this request any more: free all it holds, before the next forward. Dropping twice is fine."""
        if request.fitted is not None:
            self.fitting.drop(request)
        with self._turn:
            self.waiting.remove(request)
            self._dropped.append(request)
            self._turn.notify()

    def close(self, grace: float) -> None:
        """Take no more requests and give those that are there `grace` seconds; does not wait for that."""
        until = monotonic() + grace
        with self._turn:
            self._until = until if self._until is None else min(self._until, until)
            self._turn.notify()
        self.fitting.close()

    def abandon(self) -> None:
        """Tell all who still wait that nothing more will come, where the thread has not come round to it."""
        for request in [*self.live, *self.waiting]:
            request.tell([Failed(ShuttingDown(GIVEN_UP))])

    def stop(self, grace: float, patience: float = PATIENCE) -> bool:
        """Close, end what is left after `grace` seconds, and end the thread; False if it hangs for `patience` more.

        Then all who wait have been told, but the process must not go on as if nothing had happened.
        """
        self.close(grace)
        if self.alive:
            assert self._until is not None
            self._thread.join(max(0.0, self._until - monotonic()) + patience)
        if self.alive:
            self.abandon()
        return not self.alive

    def where(self) -> list[str]:
        """Where the thread is just now, outermost first."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return [] if frame is None else places(traceback.extract_stack(frame))

    def _made(self) -> Engine:
        limits = self.limits
        return Engine(self.lm.models(), self.lm.price, limits.rows, limits.parallel, limits.share)

    def _refuse_unready(self) -> None:
        if self.lost is not None:
            raise RankLost(self.lost)
        if not self.ready:
            raise ShuttingDown("the server is shutting down; send the request to another, or later")

    def _prepare(self) -> None:
        self.lm.vocabulary.prepare()
        with suppress(UnspoolError):  # not installed, or a vocabulary that no text could end with: told to who asks
            tongue(self.lm.vocabulary)
            self.fitting.trials.start()

    @property
    def _wanted(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.waiting or self.live or self._dropped) or self._until is not None

    # ---- in the worker's thread

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # nobody would be answered from here on, and the process would live on
            self.lost = f"the worker's thread has ended by {type(error).__name__}; the server has to be started again"
            log("worker", {"message": self.lost, "traceback": places(traceback.extract_tb(error.__traceback__))})
            self.died = True
            self.fitting.close()
            for request in [*self.live, *self.waiting]:
                request.tell([Failed(Panic(self.lost).with_traceback(error.__traceback__))])

    def _serve(self) -> None:
        while True:
            self._hear()
            self._begin_some()
            self._beat = monotonic()
            if self._until is not None and (monotonic() >= self._until or not (self.live or self.waiting)):
                break
            self._let_in()
            if self.live:
                self._step()
        with self._turn:
            left = [*self.live, *self.waiting.clear()]
        for request in left:
            self._leave(request, ShuttingDown(GIVEN_UP))

    def _hear(self) -> None:
        """Wait for something to do, and forget what was dropped."""
        while not self._wanted and self._capturing is not None and self._capturing.capture_next():
            self._beat = monotonic()
        with self._turn:
            while not self._wanted:
                self._idle = True
                self._turn.wait()
            self._idle, self._beat = False, monotonic()
            dropped, self._dropped = self._dropped, []
        for request in dropped:
            if request in self.live or request in self._begun:
                self._leave(request, None)

    def _begin_some(self) -> None:
        """Begin a few requests, by turns for their clients: those who write wait for no more than a moment of it."""
        began = perf_counter()
        for _ in range(BEGUN):
            request = self._next()
            if request is None:
                break
            self._beat = monotonic()
            self._begin(request)
            if perf_counter() - began > BEGINNING:
                break

    def _next(self) -> ServerRequest | None:
        """Who is begun next: of the clients who may, the one whose turn is longest ago."""
        with self._turn:
            there = set(self.waiting) if self._new else set()
            self._new = [request for request in self._new if request in there]
            may = [request for request in self._new if not self.live or self.engine.scheduler.may_begin(request.client)]
            if not may:
                return None
            request = min(may, key=lambda one: self._last.get(one.client, 0))
            self._new.remove(request)
            number = 1 + max(self._last.values(), default=0)
            left = {one.client for one in self._new}
            self._last = {client: last for client, last in self._last.items() if client in left}
            self._last[request.client] = number
            return request

    def _begin(self, request: ServerRequest) -> None:
        self._begun[request] = None
        began = perf_counter()
        try:
            request.begin(self.lm, self.engine)
        except BaseException as error:
            self._leave(request, as_error(error))
        self.engine.scheduler.has_begun(request.client, perf_counter() - began)

    def _let_in(self) -> None:
        """Run the engine's admission, and tell clients whose requests were admitted so before any token comes."""
        try:
            self.engine.admit()
        except BaseException as error:
            self._renew(as_error(error))
        for request in [request for request in self._begun if request.entered]:
            del self._begun[request]
            self.live[request] = None
            with self._turn:
                self.waiting.take(request)
            request.enter()

    def _step(self) -> None:
        try:
            self.engine.step()
        except BaseException as error:  # not of one request: those end by themselves
            self._renew(as_error(error))
        for request in list(self.live):
            request.look(self.engine)
            if not request.open:
                self._leave(request, None)

    def _leave(self, request: ServerRequest, error: Exception | None) -> None:
        """Forget a request and free what it holds; `error`, if there is one, is told to its client."""
        request.drop(self.engine)
        for writer in request.writers:
            self.total += _counted(writer.job.trace)
            if isinstance(writer.job.error, RankLost):
                self.lost = str(writer.job.error)
        self.live.pop(request, None)
        self._begun.pop(request, None)
        with self._turn:
            self.waiting.remove(request)
        if error is not None:
            request.tell([Failed(error)])

    def _renew(self, error: Exception) -> None:
        """Start again with an empty engine; everybody who was let into the old one is told why."""
        old, self.engine = self.engine, self._made()
        with self._turn:
            self._new = [*self._begun, *self._new]
        for request in self._begun:
            request.return_to_queue(old)
        self._begun.clear()
        for request in list(self.live):
            for writer in request.writers:
                with suppress(Exception):  # it may stand neither in the queue nor among the living
                    old.cancel(writer.job)
                for session in writer.job.sessions.values():
                    session.close()
            self._leave(request, error)


def _counted(trace: Trace) -> Trace:
    """The figures of a text that are worth adding up."""
    kept = Trace(tokens=trace.tokens, rounds=trace.rounds, drafted=trace.drafted)
    kept.accepted.update(trace.accepted)
    kept.forwards[TARGET] = trace.forwards[TARGET]
    return kept
