"""All lines by one engine, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TypeAlias

from .line_writer import LineWriter, Record

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
