"""The lines of the input: found by where they begin, so that a file of any size is read line by line."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from ...core.errors import BadRequest

SIZE = 16  # bytes of a digest
MARK = b"\xef\xbb\xbf"  # what some editors put before UTF-8


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
            for line in file:
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
