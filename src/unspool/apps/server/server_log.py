"""The log: one line of JSON on stderr for whatever happens, never with a prompt or an answer in it."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from time import monotonic

DEPTH = 24  # places of a stack that a line names, the innermost


def log(event: str, record: Mapping[str, object]) -> None:
    """Write one line: the time, what happened, and its particulars."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    print(json.dumps({"time": now, "event": event, **record}), file=sys.stderr, flush=True)


def places(stack: traceback.StackSummary) -> list[str]:
    """The last places of a stack, outermost first: files, lines and functions, and nothing that is in variables."""
    return [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in stack[-DEPTH:]]


class Sparing:
    """Says which of many lines to write: `burst` at once, then `rate` a second, so that no flood can fill a disk."""

    def __init__(self, burst: int = 200, rate: float = 5.0, clock: Callable[[], float] = monotonic) -> None:
        self._burst, self._rate, self._clock = burst, rate, clock
        self._left, self._at, self._skipped = float(burst), clock(), 0

    def next(self) -> dict[str, int] | None:
        """None if the next line is to be left out; else how many were left out before it, as a field of the line."""
        now = self._clock()
        self._left, self._at = min(self._burst, self._left + (now - self._at) * self._rate), now
        if self._left < 1:
            self._skipped += 1
            return None
        self._left -= 1
        skipped, self._skipped = self._skipped, 0
        return {"left_out": skipped} if skipped else {}


class JournalHandler(logging.Handler):
    """The messages of the packages below, as lines of the same journal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one."""
        about: dict[str, object] = {"level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            about["error"] = repr(record.exc_info[1])
            about["traceback"] = places(traceback.extract_tb(record.exc_info[2]))
        log(record.name, about)
