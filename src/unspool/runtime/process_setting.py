"""Settings of the whole process, such as PyTorch's flags, that several threads may change for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class ProcessSetting(Generic[T]):
    """One setting with a guard: the first who changes it notes what it was, and the last who is done puts that back.

    Without the count, two threads that overlap would leave it changed: the second would note what the first had set.
    """

    def __init__(self, read: Callable[[], T], write: Callable[[T], None]) -> None:
        self._read, self._write = read, write
        self._lock = threading.Lock()
        self._before: T | None = None
        self._holders = 0

    def hold(self, value: T) -> None:
        """Set it, until as many have let go as hold it."""
        with self._lock:
            if self._holders == 0:
                self._before = self._read()
            self._holders += 1
            self._write(value)

    def let_go(self) -> None:
        """Put back what was there before, if nobody else holds it."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                assert self._before is not None
                self._write(self._before)

    @contextmanager
    def set_to(self, value: T) -> Iterator[None]:
        """Hold it for a block of code."""
        self.hold(value)
        try:
            yield
        finally:
            self.let_go()
