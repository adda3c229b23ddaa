"""Chunked prefill: how much of their prompts new requests read at a time, so that those who write need not wait."""

from __future__ import annotations

from collections.abc import Sequence

from .contracts import SupportsChunkedPrefill
from .job import Job


def chunks(
    model: SupportsChunkedPrefill, name: str, jobs: Sequence[Job], writing: int, forwards: int
) -> dict[Job, int]:
    """Which of these who ask a model must read before they can be answered, and how many tokens each reads now.

    While somebody writes with it (`writing` requests), `forwards` at a time, no more than the model's chunk per
    forward is read of all new prompts together, or a token for each who writes, if those are more: the oldest request
    first. Whose prompt ends within that is answered. Where nobody writes, nobody is held up, and all is read at once.
    """
    left = max(model.portion, writing) * forwards
    found: dict[Job, int] = {}
    for job in jobs if writing else ():
        owed = 0 if job.trace.forwards[name] else model.owed(job.sessions[name])
        if owed > left:
            found[job], left = left, 0
        else:
            left -= owed
    return found
