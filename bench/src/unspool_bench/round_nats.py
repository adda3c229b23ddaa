"""From nats to rounds: what each look of a decoded canvas told, and how few looks could have told as much."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from unspool.core.asks import TARGET
from unspool.runtime.engine.job import Job


class FilledCanvas(NamedTuple):
    """One canvas that was filled: the answer, the forwards it took, and the nats that each round told.

    A round tells Σ −ln p(token) of what it filled, p the model's own law at that moment; what was taken back later
    does not count.
    """

    answer: tuple[int, ...]
    forwards: int
    nats: tuple[float, ...]

    @property
    def information(self) -> float:
        """I = −ln of the product of all laws that the answer was drawn from, in nats."""
        return math.fsum(self.nats)

    @property
    def least(self) -> int:
        """The fewest rounds that could tell as much if none may tell more than the fullest did: ⌈I / max⌉."""
        most = max(self.nats, default=0.0)
        # a sum of equal parts may come out a hair above their number
        return max(1, math.ceil(self.information / most - 1e-9)) if most > 0 else 1


def filled(job: Job) -> FilledCanvas:
    """What an ended request did, from what it emitted; its rounds are at least `least`, or something is miscounted."""
    done = job.result()
    laws = [law for emit in job.emitted for law in emit.before]
    canvas = next((emit.canvas for emit in reversed(job.emitted) if emit.canvas is not None), None)
    if canvas is None:
        raise ValueError("the method filled no canvas, so it has no rounds to count")
    nats: defaultdict[int, float] = defaultdict(float)
    when = canvas.filled[len(job.text) :]
    for step, token, law in zip(when, done.tokens, laws, strict=False):
        nats[step] += max(0.0, -law.logprob(token))
    told = FilledCanvas(done.tokens, job.trace.forwards[TARGET], tuple(nats[step] for step in sorted(nats)))
    assert told.forwards >= len(told.nats) >= told.least, f"{told} tells more than its rounds can hold"
    return told
