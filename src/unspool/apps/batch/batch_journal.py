"""The journal of a batch: every answer as it comes, so that a killed run goes on where it was.

The lines of the input are found by where they begin, so that a file of any size is read line by line.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any

from ...core.errors import BadRequest
from ...core.files import TEXT

SIZE = 16  # bytes of a digest
MARK = b"\xef\xbb\xbf"  # what some editors put before UTF-8
PAUSE = 1.0  # seconds between writes that wait for the disk: what a power cut may cost
NEW = "begin anew with --fresh, or name another output"


@dataclass(frozen=True)
class LineFile:
    """A file as lines: `starts` are where they begin, and where the last one ends; `digest` is that of all bytes.

    A line ends with a line feed; the last one may lack it. Eight bytes of memory a line, however long.
    """

    path: Path
    starts: array[int]
    digest: str
    seen: tuple[int, int]  # size and time of the file when it was read

    @staticmethod
    def of(path: Path) -> LineFile:
        """Read a file once, for where its lines begin and what is in it."""
        if not path.is_file():
            why = "it is no plain file, and lines are read more than once" if path.exists() else "there is no such file"
            raise BadRequest(f"{path} cannot be used: {why}. Give a file with one request a line.")
        starts, digest = array("Q", [0]), blake2b(digest_size=SIZE)
        seen = _seen(path)
        with path.open("rb") as file:
            while line := file.readline(TEXT + 1):
                if len(line) > TEXT:
                    told = f"line {len(starts)} has more than {TEXT} bytes"
                    raise BadRequest(f"{path} cannot be used: {told}. Give a file with one request a line.")
                starts.append(starts[-1] + len(line))
                digest.update(line)
        return LineFile(path, starts, digest.hexdigest(), seen)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def read(self, wanted: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """These lines (from 0), without their ends and without the mark that a file may begin with."""
        with self.path.open("rb") as file:
            for index in wanted:
                if file.tell() != self.starts[index]:
                    file.seek(self.starts[index])
                line = file.read(self.starts[index + 1] - self.starts[index])
                yield index, (line.removeprefix(MARK) if index == 0 else line).rstrip(b"\r\n")

    def check(self) -> None:
        """Refuse to go on with a file that has changed since it was read."""
        if not self.path.is_file() or _seen(self.path) != self.seen:
            raise BadRequest(
                f"{self.path} was changed while its lines were being answered; what is done is kept. Put the old file "
                "back and run the same command again, or begin anew with --fresh."
            )


def digest(line: bytes) -> str:
    """What tells a line from another."""
    return blake2b(line, digest_size=SIZE).hexdigest()


def _seen(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say which file it is that cannot be written, as a full disk does not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


class BatchJournal:
    """A file beside the output: first what is asked for, then one line for every answer, in any order.

    An answer is handed to the system before the next is waited for, so that a killed process has lost none. A line that
    cannot be read, such as one that was cut off, counts as not written. Kept in memory: where each answer stands.
    """

    def __init__(
        self, path: Path, about: Mapping[str, Any], lines: LineFile, contents: Mapping[str, str] | None = None
    ) -> None:
        """Open or begin it; `about` is what all answers depend on, besides the lines.

        `contents` are fingerprints of what is in the models' files, by the part that each model plays.
        """
        self.path, self.about, self._lines, self.contents = path, dict(about), lines, dict(contents or {})
        self._at = array("q", [-1]) * len(lines)  # where the answer to a line stands; −1: nowhere
        self.done = 0
        end = self._read()
        self._file = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(end)
        self._file.seek(end)
        self._synced = monotonic()
        if end == 0:
            begun = {"about": self.about, "contents": self.contents, "input": lines.digest, "lines": len(lines)}
            self._append(begun)
        self.before = self.done

    def __contains__(self, index: int) -> bool:
        return self._at[index] >= 0

    def missing(self) -> Iterator[int]:
        """The lines that have no answer by now."""
        return (index for index, at in enumerate(self._at) if at < 0)

    def add(self, index: int, line: bytes, record: Mapping[str, Any]) -> bool:
        """Keep the answer to a line; False if there is one already."""
        if index in self:
            return False
        self._at[index] = self._append({"line": index + 1, "of": digest(line), "record": record})
        self.done += 1
        if monotonic() - self._synced > PAUSE:
            self.sync()
        return True

    def records(self) -> Iterator[dict[str, Any]]:
        """The answers in the order of the lines, of which none may be missing."""
        self._file.flush()
        with self.path.open("rb") as file:
            for at in self._at:
                file.seek(at)
                record: dict[str, Any] = json.loads(file.readline())["record"]
                yield record

    def sync(self) -> None:
        """Wait until all is on the disk."""
        with naming(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._synced = monotonic()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> BatchJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, record: Mapping[str, Any]) -> int:
        at = self._file.tell()
        # In ASCII: what is not text, such as half a surrogate pair, can be written so.
        with naming(self.path):
            self._file.write(json.dumps(record).encode() + b"\n")
            self._file.flush()
        return at

    def _read(self) -> int:
        """Take note of what is there by now, and return where the last whole line ends."""
        end = 0
        for line in _whole_lines(self.path):
            record = _record(line)
            if end == 0:
                self._compare(record)
            elif (index := _answered(record, len(self._at))) is not None:
                self.done += self._at[index] < 0
                self._at[index] = end
            end += len(line)
        return end

    def _compare(self, began: Mapping[str, Any]) -> None:
        """Refuse to go on with something else than what was begun, and say what has changed."""
        known = began.get("about")
        if not isinstance(known, dict):
            raise BadRequest(f"{self.path} is no journal of a batch; move it away, or {NEW}")
        for name in sorted({*known, *self.about}):
            if known.get(name) != self.about.get(name):
                raise BadRequest(
                    f"{self.path} was begun with {name} {known.get(name)!r}, now it is {self.about.get(name)!r}; "
                    f"give the same as before to go on, {NEW}"
                )
        self._compare_contents(began.get("contents"))
        if began.get("input") != self._lines.digest:
            raise BadRequest(
                f"{self._lines.path} has changed since {self.path} was begun: {self._change(began.get('lines'))}; "
                f"put the old file back to go on, {NEW}"
            )

    def _compare_contents(self, known: Any) -> None:
        """Refuse to go on with other weights or another tokenizer; what is known of one side alone says nothing."""
        if not isinstance(known, dict):
            raise BadRequest(
                f"{self.path} was begun by an older version, which took no note of what was in the model's files, so "
                f"that nobody can tell whether they are the same; {NEW}"
            )
        for role, mark in self.contents.items():
            if known.get(role, mark) != mark:
                raise BadRequest(
                    f"the files of the {role} ({self.about.get(role)}) have changed since {self.path} was begun: its "
                    f"weights, tokenizer or settings are others; put the old ones back to go on, {NEW}"
                )

    def _change(self, count: Any) -> str:
        """What is different about the input, as far as one can tell."""
        if count != len(self._lines):
            return f"it had {count} lines and has {len(self._lines)}"
        known: dict[int, str] = {}
        for record in map(_record, _whole_lines(self.path)):
            if (index := _answered(record, count)) is not None:
                known[index] = record["of"]
        for index, line in self._lines.read(sorted(known)):
            if digest(line) != known[index]:
                return f"line {index + 1} is another"
        return "a line that is not answered yet is another"


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file up to the one that was cut off, if one was."""
    if path.exists():
        with path.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))


def _record(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _answered(record: Mapping[str, Any], count: int) -> int | None:
    """The line (from 0) that an entry of the journal answers; None if it is no such entry."""
    line = record.get("line")
    fits = isinstance(line, int) and 1 <= line <= count and isinstance(record.get("of"), str)
    return line - 1 if fits and isinstance(line, int) and isinstance(record.get("record"), dict) else None
