"""A job: every line of a file answered once, by whoever answers lines; here by one engine, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TypeAlias

from .batch_journal import BatchJournal, LineFile
from .line_writer import LineWriter, Record, failed, named

Line: TypeAlias = tuple[int, bytes]
WATCH = 5.0  # seconds after which to see whether the engine still runs


def alone(scribe: LineWriter, ahead: int, lines: Iterable[Line]) -> Iterator[tuple[Line, Record]]:
    """Every line with its record, in the order in which they are finished; `ahead` are read before the first is."""
    came: SimpleQueue[tuple[Line, Record]] = SimpleQueue()
    rest, waiting = iter(lines), 0
    while True:
        for line in islice(rest, ahead - waiting):
            waiting += 1
            scribe.answer(*line, partial(_put, came, line))
        if not waiting:
            return
        try:
            yield came.get(timeout=WATCH)
        except Empty:
            if not scribe.alive:
                raise RuntimeError("the thread that writes texts has ended") from None
            continue
        waiting -= 1


def _put(came: SimpleQueue[tuple[Line, Record]], line: Line, record: Record) -> None:
    came.put((line, record))


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
