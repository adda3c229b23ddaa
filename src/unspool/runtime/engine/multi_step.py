"""Multi-step decoding: how many tokens a device writes before anybody looks. This is decided here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...core.asks import Write
from .contracts import SupportsDeviceDecoding
from .job import Job

LONGEST = 32  # tokens that a device may write before anybody looks
BRIEF = 4  # and while others wait for a forward of their own


class MultiStep:
    """Lets requests go on writing where nobody looks at the laws and their model has a device that can.

    A device writes up to `LONGEST` tokens at a time; `BRIEF` where others ask the same model for something else or
    read their prompts, and one where somebody waits for a prompt that is just being read. Nobody who looks on is kept
    waiting for longer than the patience it was submitted with, by the pace of the last tokens that were written.
    """

    def __init__(self, devices: Mapping[str, SupportsDeviceDecoding]) -> None:
        self._devices = devices
        self._longest = LONGEST
        self._pace = math.inf  # seconds per token of what was written last

    def reach(self, job: Job, name: str) -> int:
        """How many tokens the model may write for a request in one go; 0 if its device cannot write for it."""
        device = self._devices.get(name)
        if device is None or not job.writes or not isinstance(job.ask, Write):
            return 0
        return device.reach(job.ask)

    def forwards(self, name: str, asking: Sequence[Job], held: bool) -> int:
        """How many forwards of a model go by before the next step, for those who read their prompts in between."""
        return BRIEF if name in self._devices and not held and any(job.writes for job in asking) else 1

    def plan(self, held: bool, mixed: bool) -> None:
        """Take note of a step: whether somebody is held back in it, and whether its requests ask for several things."""
        self._longest = 1 if held else BRIEF if mixed else LONGEST

    def tokens(self, jobs: Sequence[Job]) -> int:
        """How many tokens to write now; just one where somebody who looks on still waits for the first."""
        patience = min(job.patience for job in jobs)
        if patience == math.inf:
            return self._longest
        fresh = any(job.trace.seconds_first is None and job.patience < math.inf for job in jobs)
        return 1 if fresh else int(max(1, min(self._longest, patience / self._pace)))

    def took(self, seconds: float, tokens: int) -> None:
        """Take note of how long the last ones took."""
        self._pace = seconds / tokens
