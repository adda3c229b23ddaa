"""All lines by a fleet: Ray Data over workers with one engine each, on as many machines as there are."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import ray
import ray.data
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...api.lm import LM
from ...core.errors import UnspoolError
from ..cluster import Crew
from .batch_work import Line
from .line_writer import LineDefaults, LineWriter, Record, failed, named

BLOCK = 4  # lines that are sent to a worker, and come back, together
WINDOW = 20_000  # lines that are planned at a time
BYTES = 64 << 20  # and of how many bytes
UNFIT = "unfit"  # instead of a record: why a worker has no model
DEATHS = 3  # of a worker while a line is being written; then it may be the line's doing


class Died(Exception):
    """Workers died while a line was being written."""


class Attempts:
    """How often each line was begun by now."""

    def __init__(self) -> None:
        self._begun: Counter[int] = Counter()

    def begin(self, indices: Sequence[int]) -> list[int]:
        """Take note of lines that are begun; returns how often each of them had been."""
        before = [self._begun[index] for index in indices]
        self._begun.update(indices)
        return before


class BatchWorker:
    """One worker: it loads the model once and answers blocks of lines, several at a time by one engine."""

    def __init__(self, load: Callable[[], LM], reading: LineDefaults, parallel: int, ledger: Any) -> None:
        self._ledger, self._unfit = ledger, ""
        try:
            self._scribe = LineWriter(load(), reading, parallel)
        except UnspoolError as error:  # the same anywhere: no reason to try again and again
            self._unfit = str(error)

    async def __call__(self, block: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        indices, texts = [int(index) for index in block["line"]], [bytes(text) for text in block["text"]]
        if self._unfit:
            yield {"line": indices, "record": [json.dumps({UNFIT: self._unfit}) for _ in indices]}
            return
        begun = await self._ledger.begin.remote(indices)
        records = await asyncio.gather(*map(self._answered, indices, texts, begun))
        yield {"line": indices, "record": [json.dumps(record) for record in records]}

    async def _answered(self, index: int, text: bytes, begun: int) -> Record:
        if begun >= DEATHS:
            return failed(named(text), Died(f"{begun} workers died while this line was being written"))
        loop = asyncio.get_running_loop()
        record: asyncio.Future[Record] = loop.create_future()

        def told(found: Record) -> None:
            loop.call_soon_threadsafe(record.set_result, found)

        self._scribe.answer(index, text, told)
        return await record


@dataclass(frozen=True)
class Fleet:
    """Answers lines by `crew`, each of which writes `parallel` texts at a time, of `ahead` lines that it has begun.

    A worker that dies is replaced, and its lines are begun again, by Ray Data. A line that was being written whenever
    workers died is not begun for ever: see `Attempts`.
    """

    load: Callable[[], LM]
    reading: LineDefaults
    crew: Crew
    parallel: int
    ahead: int

    def __call__(self, lines: Iterable[Line]) -> Iterator[tuple[Line, Record]]:
        """Every line with its record, in the order in which they are finished."""
        rest = iter(lines)
        while window := _window(rest):
            yield from self._answers(window)

    def _answers(self, window: dict[int, bytes]) -> Iterator[tuple[Line, Record]]:
        quiet()
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)  # it ends with us
        kept = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here)
        ledger = kept(Attempts).remote()
        block = min(BLOCK, self.ahead)
        items = [{"line": index, "text": text} for index, text in window.items()]
        made = ray.data.from_items(items, override_num_blocks=-(-len(items) // block)).map_batches(
            BatchWorker,
            batch_size=None,
            fn_constructor_args=(self.load, self.reading, self.parallel, ledger),
            num_cpus=self.crew.cpus,
            num_gpus=self.crew.gpus,
            compute=ray.data.ActorPoolStrategy(
                size=self.crew.workers, max_concurrent_calls_per_actor=-(-self.ahead // block)
            ),
        )
        for batch in made.iter_batches(batch_size=None, prefetch_batches=0):
            for index, written in zip(batch["line"], batch["record"], strict=True):
                record = json.loads(written)
                if UNFIT in record:
                    raise UnspoolError(f"a worker cannot load the model: {record[UNFIT]}")
                yield (int(index), window[int(index)]), record


def _window(rest: Iterator[Line]) -> dict[int, bytes]:
    """The next lines, as many as may be planned at a time."""
    window, size = {}, 0
    for index, text in islice(rest, WINDOW):
        window[index] = text
        size += len(text)
        if size > BYTES:
            break
    return window


def quiet() -> None:
    """Leave the terminal to our own bar."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
