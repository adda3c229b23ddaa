"""The end of a server: whose thread has to end, and in what time."""

from __future__ import annotations

from dataclasses import dataclass

from .worker import Worker

JOIN = 2.0  # seconds beyond its grace in which the worker's thread has to end


@dataclass(frozen=True)
class Shutdown:
    """The worker behind an application, and the seconds that its requests have left when the server shuts down."""

    worker: Worker
    grace: float

    def join(self, grace: float | None = None) -> bool:
        """End the worker and wait for that, but not for ever; whether it has ended."""
        return self.worker.stop(self.grace if grace is None else grace, JOIN)
