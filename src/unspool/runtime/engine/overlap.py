"""Draft models that work while the target checks: one thread beside the engine's own.

What runs there is joined before anything else touches its model, so that no model is used by two threads at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ...core.asks import TARGET, Begin, Score
from ...core.tree import NOTHING, Tree
from .contracts import Causal, Model, PlacedModel, ScoreRequest
from .job import Job


@dataclass
class Work:
    """Drafting for one request: what comes of it, and what it took."""

    by: str
    result: Future[Tree]
    forwards: int = 0
    rows: int = 0


class Overlap:
    """What is drafted beside the engine, by request.

    Where the draft model has a device of its own it works in a thread; models without a device, as tables are, work at
    once, and two models on one device not at all: there is nothing to gain.
    """

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models = models
        self._pending: dict[Job, Work] = {}
        self._thread: ThreadPoolExecutor | None = None

    def begin(self, job: Job, ask: Begin) -> None:
        """Start what a request asks for, if that can be done beside the target."""
        target, model = self._models[TARGET], self._models.get(ask.by)
        if not isinstance(model, Causal) or ask.by == TARGET:
            return
        work = Work(ask.by, Future())
        run = partial(self._drafted, model, job, ask, work)
        if not isinstance(model, PlacedModel) or not isinstance(target, PlacedModel):
            run(None)
        elif model.place == target.place:
            return
        else:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="unspool-draft")
            self._thread.submit(run, model.place)
        self._pending[job] = work

    def fetch(self, job: Job) -> Tree | None:
        """What was drafted for a request, None if nothing was; waits for it. Its errors are the request's."""
        work = self._pending.pop(job, None)
        if work is None:
            return None
        try:
            return work.result.result()
        finally:
            job.trace.forwards[work.by] += work.forwards
            job.trace.rows[work.by] += work.rows

    def join(self, name: str | None = None) -> None:
        """Wait until nothing runs on a model any more, or on none of them."""
        for work in self._pending.values():
            if name is None or work.by == name:
                work.result.exception()

    def drop(self, job: Job) -> None:
        """Forget what was drafted for a request that has ended, once it no longer runs."""
        if (work := self._pending.pop(job, None)) is not None:
            work.result.exception()

    def close(self) -> None:
        """Let the thread end."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _drafted(self, model: Causal, job: Job, ask: Begin, work: Work, place: torch.device | None) -> None:
        reply: Any = None
        try:
            if place is not None and place.type == "cuda":
                torch.cuda.set_device(place)
            while not job.late:
                asked: Any = ask.proposing.send(reply)
                if not isinstance(asked, Score) or asked.by != ask.by:
                    reply = None
                    continue
                (reply,) = model.score([ScoreRequest(job.sessions[ask.by], asked.tree, asked.want)])
                work.forwards, work.rows = work.forwards + 1, work.rows + reply.rows
            work.result.set_result(NOTHING)  # whose time is over gets no more
        except StopIteration as end:
            work.result.set_result(end.value)
        except BaseException as error:
            work.result.set_exception(error)
