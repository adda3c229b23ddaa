"""Fitting: the forms of requests are compiled beside the worker, and no client waits for all of another's."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count

from ...core.errors import Panic
from ...rules.constrain.trial import under
from .breath import SearchBreath
from .grammar_process import Asker, Trials
from .server_request import BEYOND, Busy, ServerRequest

FITTERS = 3  # threads that compile
SHARE = 2  # of them for one client at a time, so that there is always one for the others
STACK = 16 << 20  # bytes: more than a trial has, so that what did not crash there does not here


@dataclass(eq=False)
class Ticket:
    """One request whose form is to be fitted."""

    request: ServerRequest
    fit: Callable[[], None]
    size: int
    number: int
    done: Future[None] = field(default_factory=Future)
    asker: Asker = field(default_factory=Asker)


class CompileQueue:
    """Fits the forms of at most `most` requests, by turns for their clients, of each client the smallest first.

    Where several clients wait each has its part of these places, and finds it though another has filled them before, as
    in `Queue`; so all together may have `BEYOND` times as many.

    Whatever llguidance is to compile is tried in another process first. One who leaves has the trial ended; what has
    passed one is known to take no longer than that, and runs on in its thread. A search for an end (`decoding.within`,
    calls that must be made) is made in the thread, in slices with rests between them: it ends as a trial does.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.trials = Trials(seconds)
        self._most = most
        self._waiting: OrderedDict[str, list[Ticket]] = OrderedDict()  # by client, whose turn is next first
        self._running: list[Ticket] = []
        self._numbers = count()
        self._turn = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def __len__(self) -> int:
        """How many have not been fitted yet."""
        with self._turn:
            return len(self._running) + sum(map(len, self._waiting.values()))

    def submit(self, request: ServerRequest, fit: Callable[[], None], size: int) -> Future[None]:
        """Have `fit` called for a request in its turn; Busy if too many wait."""
        with self._turn:
            self._refuse_many(request.client)
            ticket = Ticket(request, fit, size, next(self._numbers))
            self._waiting.setdefault(request.client, []).append(ticket)
            self._hire()
            self._turn.notify_all()
        return ticket.done

    def drop(self, request: ServerRequest) -> None:
        """Nobody wants this request any more."""
        with self._turn:
            left = [ticket for ticket in self._waiting.get(request.client, ()) if ticket.request is request]
            for ticket in left:
                self._remove(ticket)
            running = [ticket for ticket in self._running if ticket.request is request]
        for ticket in left:
            ticket.done.cancel()
        for ticket in running:
            ticket.asker.leave()

    def close(self) -> None:
        """Fit nothing more."""
        with self._turn:
            self._closed = True
            left = [ticket for tickets in self._waiting.values() for ticket in tickets]
            self._waiting.clear()
            running = list(self._running)
            self._turn.notify_all()
        for ticket in left:
            ticket.done.cancel()
        for ticket in running:
            ticket.asker.leave()
        self.trials.close()

    def _refuse_many(self, client: str) -> None:
        """Busy if a client has its part of the places, or all together have too many."""
        places = Counter({name: len(tickets) for name, tickets in self._waiting.items()})
        places.update(ticket.request.client for ticket in self._running)
        others = len(places.keys() - {client})
        if places[client] >= max(1, self._most // (others + 1)) or places.total() >= BEYOND * self._most:
            told = f"the forms of {places.total()} requests wait to be compiled, {places[client]} of them yours"
            raise Busy(f"{told}, and no more may; try again later")

    def _hire(self) -> None:
        """Start the threads when there is something to do."""
        if self._threads or self._closed:
            return
        before = threading.stack_size(STACK)
        try:
            self._threads = [
                threading.Thread(target=self._work, name=f"unspool-fitting-{i}", daemon=True) for i in range(FITTERS)
            ]
            for thread in self._threads:
                thread.start()
        finally:
            threading.stack_size(before)

    def _work(self) -> None:
        while (ticket := self._next()) is not None:
            try:
                if ticket.done.set_running_or_notify_cancel():
                    self._fit(ticket)
            finally:
                with self._turn:
                    self._running.remove(ticket)
                    self._turn.notify_all()

    def _fit(self, ticket: Ticket) -> None:
        try:
            breath = SearchBreath(ticket.asker, self.trials.seconds)
            with under(lambda grammar: self.trials(grammar, ticket.asker), breath):
                ticket.fit()
        except BaseException as error:  # a panic of the compiler too: it is the request's own
            ticket.done.set_exception(error if isinstance(error, Exception) else Panic(type(error).__name__))
        else:
            ticket.done.set_result(None)

    def _next(self) -> Ticket | None:
        """Whose turn it is, once there is somebody; None when nothing more is to be done."""
        with self._turn:
            while not self._closed:
                for client, tickets in self._waiting.items():
                    if sum(ticket.request.client == client for ticket in self._running) < SHARE:
                        ticket = min(tickets, key=lambda one: (one.size, one.number))
                        self._remove(ticket)
                        if client in self._waiting:
                            self._waiting.move_to_end(client)
                        self._running.append(ticket)
                        return ticket
                self._turn.wait()
            return None

    def _remove(self, ticket: Ticket) -> None:
        tickets = self._waiting[ticket.request.client]
        tickets.remove(ticket)
        if not tickets:
            del self._waiting[ticket.request.client]
