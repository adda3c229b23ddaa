"""The log: one line of JSON on stderr for whatever happens, never with a prompt or an answer in it."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from time import monotonic

LONGEST = 1000  # characters of a message
CLIENT = "client"  # the field of a line that names an address
DEPTH = 24  # places of a stack that a line names, the innermost


def log(event: str, record: Mapping[str, object]) -> None:
    """Write one line: the time, what happened, and its particulars."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    told = json.dumps({"time": now, "event": event, **record})  # in ASCII, so that nothing in it ends the line
    print(told.replace("\x7f", "\\u007f"), file=sys.stderr, flush=True)


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
    """The messages of the packages below, as lines of the same journal; sparing, for each place that they come from."""

    def __init__(self) -> None:
        super().__init__()
        self._sparing: defaultdict[tuple[str, int], Sparing] = defaultdict(Sparing)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one, if there were not too many like it."""
        more = self._sparing[record.pathname, record.lineno].next()
        if more is None:
            return
        about: dict[str, object] = {"level": record.levelname.lower(), "message": record.getMessage()[:LONGEST]}
        if (client := getattr(record, CLIENT, None)) is not None:
            about[CLIENT] = client
        if record.exc_info and record.exc_info[1] is not None:
            about["error"] = type(record.exc_info[1]).__name__  # its message could hold a part of a prompt
            about["traceback"] = places(traceback.extract_tb(record.exc_info[2]))
        log(record.name, {**about, **more})


class ClientLogger(logging.LoggerAdapter):  # type: ignore[type-arg]  # which takes none in Python 3.10
    """A logger of one connection: the journal tells whose."""

    def __init__(self, logger: logging.Logger, client: str) -> None:
        super().__init__(logger, {CLIENT: client})

    @property
    def level(self) -> int:
        """That of the logger itself, which uvicorn asks for."""
        return int(self.logger.level)
