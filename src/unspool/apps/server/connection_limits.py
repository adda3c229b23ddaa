"""The crowd at the door: who is inside, from where, and what those are told who are too many."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from .authentication import CROWDED
from .refusal import Refusal

SPARE = 64  # connections too many that are heard out; the next one takes the place of one that has not asked yet


class Connection(Protocol):
    """One connection, as the crowd sees it."""

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        ...

    def cut(self) -> None:
        """Close it at once."""
        ...


class ConnectionLimits:
    """Counts connections: at most so many in all, and of one address.

    One too many is not closed but heard, since it may be somebody who asks whether the server is well; it is refused
    when it has asked for anything else. There are few such places, and who waits longest in one without asking loses it
    to the next, so that nobody who holds them all can keep a health check out.
    """

    def __init__(self, most: int, each: int) -> None:
        self._most, self._each = most, each
        self._inside: dict[Connection, str] = {}
        self._from: Counter[str] = Counter()
        self._surplus: dict[Connection, None] = {}  # in the order of their coming

    def enter(self, one: Connection, address: str) -> Refusal | None:
        """Count a new connection; why it will be refused, if it is one too many."""
        refused = self._refused(address)
        if refused is None:
            self._inside[one] = address
            self._from[address] += 1
            return None
        self._surplus[one] = None
        if len(self._surplus) > SPARE:
            idle = next((other for other in self._surplus if not other.busy), one)
            self._surplus.pop(idle)
            idle.cut()
        return refused

    def leave(self, one: Connection) -> None:
        """A connection has closed."""
        address = self._inside.pop(one, None)
        if address is not None:
            self._from[address] -= 1
            if not self._from[address]:
                del self._from[address]
        self._surplus.pop(one, None)

    def _refused(self, address: str) -> Refusal | None:
        if len(self._inside) >= self._most:
            message = f"{len(self._inside)} connections are open, which is as many as this server has; try again later"
            return Refusal(503, message, code="too_many_connections")
        if self._from[address] >= self._each:
            message = f"{self._each} connections of this address are open, which is as many as it may have; close some"
            return Refusal(429, message, code="too_many_connections")
        return None


def told(app: Any, refused: Refusal) -> Any:
    """The application for a connection that is one too many: every request is marked as such."""

    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, CROWDED: refused}, receive, send)

    return marked
