"""A feed of batches, packed by worker processes while the device computes."""

from __future__ import annotations

import multiprocessing
import queue
import signal
from collections.abc import Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from .noisy_rows import NoisyBatch, Recipe, pack
from .token_corpus import TokenCorpus

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.sharedctypes import Synchronized

_PATIENCE = 300.0


class BatchFeed:
    """Batches for ever, by one recipe per stage; `stage` is set by the reader and followed a few batches later."""

    def __init__(
        self, sources: Sequence[Path], recipes: Sequence[Recipe], greedy: float, held: float, seed: int, workers: int
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.batches: Queue[NoisyBatch] = context.Queue(max(2 * workers, 2))
        self.stage: Synchronized[int] = context.Value("i", 0)
        self.workers: list[SpawnProcess] = [
            context.Process(
                target=_work,
                args=(self.batches, self.stage, list(sources), list(recipes), greedy, held, (seed, worker)),
                daemon=True,
            )
            for worker in range(workers)
        ]
        for process in self.workers:
            process.start()

    def take(self) -> NoisyBatch:
        """Return the next batch."""
        for _ in range(int(_PATIENCE)):
            try:
                return self.batches.get(timeout=1.0)
            except queue.Empty:
                if not any(process.is_alive() for process in self.workers):
                    raise RuntimeError("every packing process has ended; see above for why") from None
        raise RuntimeError(f"no batch was packed in {_PATIENCE:.0f} s; use more workers")

    def __enter__(self) -> BatchFeed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.workers:
            process.kill()
        for process in self.workers:
            process.join()
        self.batches.cancel_join_thread()
        self.batches.close()


def _work(
    batches: Queue[NoisyBatch],
    stage: Synchronized[int],
    sources: list[Path],
    recipes: list[Recipe],
    greedy: float,
    held: float,
    seed: tuple[int, int],
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the reader ends us, after it has written what it has
    corpus = TokenCorpus.read(sources)
    rng = np.random.default_rng(seed)
    stream = corpus.stream(rng, corpus.split(held)[0], greedy)
    parent = multiprocessing.parent_process()
    while True:
        batch = pack(corpus, stream, rng, recipes[min(stage.value, len(recipes) - 1)])
        while True:
            try:
                batches.put(batch, timeout=5.0)
                break
            except queue.Full:
                if parent is None or not parent.is_alive():
                    batches.cancel_join_thread()
                    return
