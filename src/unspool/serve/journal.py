"""The journal: one line of JSON on stderr for whatever happens, never with a prompt or an answer in it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import datetime, timezone


def log(event: str, record: Mapping[str, object]) -> None:
    """Write one line: the time, what happened, and its particulars."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    print(json.dumps({"time": now, "event": event, **record}), file=sys.stderr, flush=True)


class Lines(logging.Handler):
    """The messages of the packages below, as lines of the same journal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one."""
        about: dict[str, object] = {"level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            about["error"] = repr(record.exc_info[1])
        log(record.name, about)
