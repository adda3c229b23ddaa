"""Work that may hang or crash, done in a process of its own that can be ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
MEMORY = 6 << 30  # bytes that the work may take beyond what the process has when it begins


class TooLate(Exception):
    """The work took longer than it may."""


class Crashed(Exception):
    """The process ended without an answer."""


class Apart(Generic[T, R]):
    """Calls `work` in another process, for at most `seconds` each; after a failure the next call begins a new one.

    The process is a copy of this one where the system can fork, so that what was loaded need not be loaded again.
    """

    def __init__(self, work: Callable[[T], R], seconds: float) -> None:
        self._work, self._seconds = work, seconds
        self._running: tuple[Any, Connection] | None = None

    def __call__(self, given: T) -> R:
        """What the work gives; TooLate or Crashed if it gives nothing, and its own error if it raises one."""
        _, line = self._running or self._begin()
        line.send(given)
        try:
            if not line.poll(self._seconds):
                raise TooLate
            answer = line.recv()
        except EOFError:
            self.close()
            raise Crashed from None
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Exception):
            raise answer
        made: R = answer
        return made

    def close(self) -> None:
        """End the process."""
        if self._running is not None:
            process, line = self._running
            process.kill()
            process.join()
            line.close()
            self._running = None

    def __enter__(self) -> Apart[T, R]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> tuple[Any, Connection]:
        forks = sys.platform == "linux"
        context: Any = multiprocessing.get_context("fork" if forks else "spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(self._work, here, there), daemon=True)
        process.start()
        there.close()
        self._running = process, here
        return self._running


def _serve(work: Callable[[Any], Any], other: Connection, line: Connection) -> None:
    other.close()  # a copy of it would keep the line open, and this process alive, when the other one is killed
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the other one decides
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what an engine says there would tear a progress bar apart
    _bound()
    while True:
        try:
            given = line.recv()
        except EOFError:
            return
        try:
            answer = work(given)
        except Exception as error:
            answer = error
        line.send(answer)


def _bound() -> None:
    """Let the process take only so much more memory, where the system knows how."""
    try:
        import resource  # here: Windows has none, and works without

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, OSError, ValueError):
        pass
