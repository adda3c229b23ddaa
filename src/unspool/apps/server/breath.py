"""Breath: a search in Python beside the worker rests again and again, and ends when it must."""

from __future__ import annotations

from time import perf_counter, sleep, thread_time

from ...core.errors import BadRequest
from .grammar_process import Asker, AskerLeft

# A thread that computes in Python gives the interpreter away every 5 ms; the worker, which takes it many times in a
# step, would wait for so long each time. One that sleeps gives it away at once.
SLICE, REST = 0.0005, 0.0005  # seconds of a search, and of the rest after it


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
