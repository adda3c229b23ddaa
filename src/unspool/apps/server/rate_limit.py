"""Rations: what a client has left of its limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic

from .clients import Client
from .refusal import Refusal


class RateLimit:
    """Requests at a time, and tokens from a bucket that fills evenly and holds a minute's worth.

    What was begun is finished, even beyond the limit; then the bucket has to fill up again before the next request may
    begin. Used by the event loop's thread alone.
    """

    def __init__(self, client: Client, clock: Callable[[], float] = monotonic) -> None:
        self.client, self._clock = client, clock
        self.inside = self.requests = self.refused = self.tokens = 0
        self._left, self._at = float(client.tokens_per_minute or 0), clock()

    def enter(self) -> None:
        """Begin a request, or refuse it and say when to come back."""
        most, rate = self.client.parallel, self.client.tokens_per_minute
        self.requests += 1
        if most is not None and self.inside >= most:
            self._refuse(f"{self.inside} requests of this key are being answered, which is as many as it may have", 1)
        if rate is not None:
            now = self._clock()
            self._left, self._at = min(rate, self._left + (now - self._at) * rate / 60), now
            if self._left <= 0:
                self._refuse(f"this key has used its {rate} tokens a minute", math.ceil(-self._left * 60 / rate) or 1)
        self.inside += 1

    def leave(self) -> None:
        """End a request."""
        self.inside -= 1

    def spend(self, tokens: int) -> None:
        """Count tokens that a request read or wrote."""
        self.tokens += tokens
        self._left -= tokens

    def _refuse(self, why: str, seconds: int) -> None:
        self.refused += 1
        raise Refusal(429, f"{why}; try again in {seconds} seconds", code="rate_limit_exceeded", retry=seconds)
