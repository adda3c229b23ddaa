"""The output: put together at the end, in the order of the input, and never seen half-written."""

from __future__ import annotations

import filecmp
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import BadRequest
from ...models.lock import locked
from .batch_journal import BatchJournal, naming


@dataclass
class Tally:
    """What came of the lines."""

    lines: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def count(self, record: dict[str, Any]) -> None:
        """Add a record."""
        self.lines += 1
        self.failed += record["error"] is not None
        usage = record["response"]["body"].get("usage", {})
        self.prompt_tokens += usage.get("prompt_tokens", 0)
        self.completion_tokens += usage.get("completion_tokens", 0)


@dataclass(frozen=True)
class AnswerFile:
    """A file of answers, with the journal and the lock that stand beside it until it is finished."""

    path: Path
    overwrite: bool = False

    @property
    def part(self) -> Path:
        """The journal."""
        return self.path.with_name(self.path.name + ".part")

    def check(self) -> None:
        """Refuse a place where no file can be put, or where one is already."""
        if not self.path.parent.is_dir():
            raise BadRequest(f"{self.path} cannot be written: there is no folder {self.path.parent}")
        if self.path.exists() and not self.path.is_file():
            raise BadRequest(f"{self.path} is no plain file; name one, as answers are put in order at the end")
        if self.path.exists() and not self.overwrite and not self.part.exists():
            raise self._there("it is not written again")

    def check_rest(self, journal: BatchJournal) -> None:
        """Refuse to go on with a journal whose answers could not be put in place at the end."""
        if self.path.exists() and not self.overwrite and next(journal.missing(), None) is not None:
            raise self._there(f"{self.part} goes on with another")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs away, until this one ends, however it ends."""
        lock = self.path.with_name(self.path.name + ".lock")

        def taken() -> None:
            raise BadRequest(f"another run is writing {self.path} just now; wait for it, or name another output")

        with locked(lock, taken):
            if not lock.exists():  # it was removed by a run that has ended since we opened it
                taken()
            try:
                yield
            finally:
                with suppress(OSError):  # some systems do not remove what is open
                    lock.unlink()

    def finish(self, journal: BatchJournal) -> Tally:
        """Put the answers into the order of the input, and in place at once; the journal goes.

        Killed before the journal is gone, a run finds both; then the same file is made again, and that is all.
        """
        journal.sync()
        new, tally = self.path.with_name(self.path.name + ".new"), Tally()
        with naming(new), new.open("wb") as file:
            for record in journal.records():
                tally.count(record)
                file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists() and not self.overwrite and not filecmp.cmp(new, self.path, shallow=False):
            new.unlink()
            raise self._there(f"all answers are kept in {self.part}")
        os.replace(new, self.path)
        _sync(self.path.parent)
        journal.close()  # some systems do not remove what is open
        self.part.unlink()
        return tally

    def _there(self, what: str) -> BadRequest:
        return BadRequest(f"{self.path} is there already, and {what}; give --overwrite, or name another output")


def _sync(folder: Path) -> None:
    """Have a rename outlast a power cut, where the system knows how."""
    if hasattr(os, "O_DIRECTORY"):
        opened = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
