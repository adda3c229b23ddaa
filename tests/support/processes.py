"""Programs that a test starts: whatever becomes of the test, they end with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def started(command: Sequence[Any], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A running program, killed at the end if it still runs.

    `subprocess.Popen` alone would wait for one that a failed test has not ended, for ever; and one that nobody waits
    for is complained about in whichever test the collector happens to run.
    """
    with subprocess.Popen(list(map(str, command)), **options) as process:
        try:
            yield process
        finally:
            process.kill()
