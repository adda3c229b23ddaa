"""One process at a time: a lock on a file, which the system lets go of when its holder ends, however it ends."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_PAUSE_S = 0.1
_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)

if sys.platform == "win32":
    import msvcrt

    def _take(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at `path`; `waiting` is called once if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told = False
    with path.open("ab") as file:
        while True:
            try:
                _take(file)
                break
            except OSError as error:
                if error.errno not in _TAKEN:
                    # Some network file systems have no locks; renames are atomic there too, so work can go on.
                    break
                if not told:
                    waiting()
                    told = True
                time.sleep(_PAUSE_S)
        # Closing the file lets go; the empty file stays, since removing it would race with the next holder.
        yield
