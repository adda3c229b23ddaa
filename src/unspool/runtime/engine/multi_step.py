"""A burst: how many tokens a model writes on its device before anybody looks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .job import Job

LONGEST = 32  # tokens that a model may write before anybody looks
BRIEF = 4  # and while others wait for a forward of their own


def burst(jobs: Sequence[Job], longest: int, pace: float) -> int:
    """At most `longest` tokens, and no more than the least patient waits for at `pace` seconds each.

    Just one where somebody who looks on still waits for the first.
    """
    patience = min(job.patience for job in jobs)
    if patience == math.inf:
        return longest
    fresh = any(job.trace.seconds_first is None and job.patience < math.inf for job in jobs)
    return 1 if fresh else int(max(1, min(longest, patience / pace)))
