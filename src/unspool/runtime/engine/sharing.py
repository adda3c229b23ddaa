"""One budget of drafted nodes for all requests of an owner that are checked together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ...core.asks import Share
from ...core.cost import Cost
from .job import Job


def by_owner(asking: Sequence[Job], cost: Cost) -> list[tuple[Job, int]]:
    """How many of its nodes each of these may have checked.

    Requests of one owner share a budget: how much a text drafts tells of the others, as what is in the cache does.
    """
    found: list[tuple[Job, int]] = []
    for owner in dict.fromkeys(job.account.owner for job in asking):
        jobs = [job for job in asking if job.account.owner == owner]
        asked = [job.ask for job in jobs if isinstance(job.ask, Share)]
        found += zip(jobs, allotted(asked, cost), strict=True)
    return found


def allotted(asked: Sequence[Share], cost: Cost) -> list[int]:
    """How many of its nodes each request may have checked: those with the largest values over all of them.

    At most Σ `most` nodes; and they are taken one by one, the largest first, as long as another one makes more tokens
    per time: (requests + Σ of the n largest values) / t(requests + n). What comes after the first that does not is not
    looked at: its value may tell which token was drawn before it, and to keep that token for it would be wrong. Of
    equal values those of the first request come first.
    """
    falling = [list(accumulate(ask.values, min)) for ask in asked]  # of each request its first ones, whatever it says
    ranked = sorted((-value, i) for i, values in enumerate(falling) for value in values)
    ranked = ranked[: sum(max(0, ask.most) for ask in asked)]
    found, tokens = [0] * len(asked), float(len(asked))
    for n, (minus, i) in enumerate(ranked, len(asked)):
        if (tokens - minus) * cost(n) < tokens * cost(n + 1):
            break
        tokens -= minus
        found[i] += 1
    return found
