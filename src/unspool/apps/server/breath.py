"""Rests of what computes in Python beside the worker: of searches, which also end when they must, and of reading."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter, sleep, thread_time
from typing import TypeVar
from weakref import WeakValueDictionary

from ...core.errors import BadRequest
from .grammar_process import Asker, AskerLeft
from .server_request import Busy

T = TypeVar("T")

# A thread that computes in Python gives the interpreter away every 5 ms; the worker, which takes it many times in a
# step, would wait for so long each time. One that sleeps gives it away at once.
SLICE, REST = 0.0005, 0.0005  # seconds of a search, and of the rest after it
BRIEF = 0.005  # seconds of reading after which nobody rests
LEAD = 3  # seconds of rest for every second of a longer one


class SearchBreath:
    """For one request: it is the end when `asker` has left, or when the thread has had `seconds` of processor time."""

    def __init__(self, asker: Asker, seconds: float) -> None:
        self._asker, self._seconds = asker, seconds
        self._began, self._rested = thread_time(), perf_counter()

    def __call__(self) -> None:
        if perf_counter() - self._rested < SLICE:
            return
        if self._asker.gone:
            raise AskerLeft
        if thread_time() - self._began > self._seconds:
            raise BadRequest(
                f"no end of a text of this form was found in {self._seconds:g} seconds of processor time, which is "
                "what this server spends on that. Allow more tokens, or a simpler form"
            )
        sleep(REST)
        self._rested = perf_counter()


class ReadingTurns:
    """Runs what reads and checks bodies beside the event loop, one of each client at a time.

    It computes in Python, as the worker does beside it, who then waits for the interpreter at every turn: a megabyte of
    small values takes tenths of a second. So a client whose body took long waits before its next one is read, and
    leaves three quarters of the time to others, however many it sends.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of clients who read or rest

    async def run(self, client: str, work: Callable[[], T], seconds: float, gone: Callable[[], Awaitable[None]]) -> T:
        """What `work` gives, in the client's turn; Busy if that does not come within `seconds`.

        `gone` is awaited when it had to wait for that, and raises if nobody wants the answer any more.
        """
        lock = self._locks.setdefault(client, asyncio.Lock())
        waits = lock.locked()
        try:
            await asyncio.wait_for(lock.acquire(), seconds)
        except asyncio.TimeoutError:
            told = f"what you have sent before takes longer to read than the {seconds:g} seconds that a request has"
            raise Busy(f"{told}; send less at a time") from None
        taken = [0.0]
        try:
            if waits:
                await gone()
            return await asyncio.to_thread(_timed, work, taken)
        finally:
            rest = LEAD * taken[0] if taken[0] > BRIEF else 0.0
            if rest:
                asyncio.get_running_loop().call_later(rest, lock.release)
            else:
                lock.release()


def _timed(work: Callable[[], T], taken: list[float]) -> T:
    began = thread_time()
    try:
        return work()
    finally:
        taken[0] = thread_time() - began
