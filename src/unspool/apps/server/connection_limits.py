"""Limits of connections: how many, how many from one address, and how long one may neither ask nor read."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from contextlib import suppress
from typing import Any, Protocol, cast

from starlette.types import Receive, Scope, Send

from .authentication import CROWDED
from .counts import subscriber
from .limits import Limits
from .refusal import Refusal
from .request_parsing import ParsingTurns, SlicedConnection
from .server_log import ClientLogger

SPARE = 64  # connections too many that are heard out; the next one takes the place of one that has not asked yet
UNSENT = 1 << 16  # bytes of an answer that may lie in the kernel before it is sent


class Connection(Protocol):
    """One connection, as the crowd sees it."""

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""

    def cut(self) -> None:
        """Close it at once."""


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


def limited_connections(limits: Limits) -> type[asyncio.Protocol]:
    """uvicorn's protocol with limits of connections, and of seconds for the head of a request and for unread bytes.

    Without them, a client that opens connections and sends little or reads nothing keeps them for as long as it likes.
    The body of a request has a limit of its own, in `body`. One who shuts down its sending side has left, as there is
    no other way to tell that from having gone; uvicorn sees to that. A connection too many can still ask for a health
    check; everything else it asks for is refused (`told`).
    """
    patience, crowd = limits.patience, ConnectionLimits(limits.connections, limits.address)

    class LimitedConnection(SlicedConnection):
        """One connection."""

        turns = ParsingTurns()
        _asking: asyncio.TimerHandle | None = None  # runs while no request is complete enough to be answered
        _reading: asyncio.TimerHandle | None = None  # runs while there are bytes that the client has not taken
        _unread = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Begin to wait for a request."""
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=0)  # so that it is known of every byte whether it was taken
            with suppress(AttributeError, OSError):  # else megabytes may lie in the kernel and look as if they were
                transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
            address = str((self.client or ("",))[0])
            self.logger = cast(logging.Logger, ClientLogger(self.logger, address))  # all of one that uvicorn uses
            refused = crowd.enter(self, subscriber(address))
            if refused is not None:
                self.app = told(self.app, refused)
            self._wait()

        @property
        def busy(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def cut(self) -> None:
            self.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            """Wait for nothing more."""
            super().connection_lost(exc)
            crowd.leave(self)
            _stop(self._asking)
            _stop(self._reading)

        def parse(self) -> None:
            """Take in a part of a request."""
            super().parse()
            self._wait()

        def pause_writing(self) -> None:
            """Begin to wait for the client to read."""
            super().pause_writing()
            self._look_again()

        def resume_writing(self) -> None:
            """The client has read all there was."""
            super().resume_writing()
            _stop(self._reading)

        def _wait(self) -> None:
            """Let the clock run if there is no request to answer, from the first byte of the next one on."""
            if self.busy:
                _stop(self._asking)
                self._asking = None
            elif self._asking is None:
                self._asking = self.loop.call_later(patience, self.transport.abort)

        def _look_again(self) -> None:
            self._unread = self.transport.get_write_buffer_size()
            self._reading = self.loop.call_later(patience, self._look)

        def _look(self) -> None:
            """Cut off a client that has read nothing since the last look."""
            if self.transport.get_write_buffer_size() < self._unread:
                self._look_again()
            else:
                self.transport.abort()

    return cast(type[asyncio.Protocol], LimitedConnection)


def _stop(clock: asyncio.TimerHandle | None) -> None:
    if clock is not None:
        clock.cancel()
