"""Turns of reading: what one client sends is read one after the other, with rests after what took long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import TypeVar
from weakref import WeakValueDictionary

from .server_request import Busy

T = TypeVar("T")
BRIEF = 0.005  # seconds of reading after which nobody rests
LEAD = 3  # seconds of rest for every second of a longer one


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
