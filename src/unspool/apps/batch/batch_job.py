"""A job: every line of a file answered once, by whoever answers lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from .alone import Line
from .batch_journal import BatchJournal
from .line_file import LineFile
from .line_writer import Record, failed, named

Answering: TypeAlias = Callable[[Iterable[Line]], Iterator[tuple[Line, Record]]]


class Lost(Exception):
    """A line that no answer came for."""


def work(lines: LineFile, journal: BatchJournal, tries: Sequence[Answering]) -> Iterator[Record]:
    """Answer the lines that the journal lacks and keep what comes; yields every record that is new.

    What went wrong with a line itself is its answer. Where something else failed (a status from 500 on) or nothing came
    back, the next of the `tries` has it; what the last one says is its answer.
    """
    for number, answering in enumerate(tries, 1):
        for (index, line), record in answering(lines.read(journal.missing())):
            final = record["response"]["status_code"] < 500 or number == len(tries)
            if final and journal.add(index, line, record):
                yield record
    for index, line in lines.read(journal.missing()):
        record = failed(named(line), Lost("no answer came back for this line"))
        if journal.add(index, line, record):
            yield record
