"""The door: how many connections there may be, and how long one may neither ask nor read."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from .connection_limits import ConnectionLimits, told
from .limits import Limits

UNSENT = 1 << 16  # bytes of an answer that may lie in the kernel before it is sent


def door(limits: Limits) -> type[asyncio.Protocol]:
    """uvicorn's protocol with limits of connections, and of seconds for the head of a request and for unread bytes.

    Without them, a client that opens connections and sends little or reads nothing keeps them for as long as it likes.
    The body of a request has a limit of its own, in `body`. One who shuts down its sending side has left, as there is
    no other way to tell that from having gone; uvicorn sees to that. A connection too many can still ask for a health
    check; everything else it asks for is refused (`crowd`).
    """
    patience, crowd = limits.patience, ConnectionLimits(limits.connections, limits.address)

    class Door(H11Protocol):
        """One connection."""

        _asking: asyncio.TimerHandle | None = None  # runs while no request is complete enough to be answered
        _reading: asyncio.TimerHandle | None = None  # runs while there are bytes that the client has not taken
        _unread = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Begin to wait for a request."""
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=0)  # so that it is known of every byte whether it was taken
            with suppress(AttributeError, OSError):  # else megabytes may lie in the kernel and look as if they were
                transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
            refused = crowd.enter(self, str((self.client or ("",))[0]))
            if refused is not None:
                self.app = told(self.app, refused)
            self._wait()

        @property
        def busy(self) -> bool:
            """Whether a request is being answered."""
            return self.cycle is not None and not self.cycle.response_complete

        def cut(self) -> None:
            """Close the connection at once."""
            self.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            """Wait for nothing more."""
            super().connection_lost(exc)
            crowd.leave(self)
            _stop(self._asking)
            _stop(self._reading)

        def data_received(self, data: bytes) -> None:
            """Take in a part of a request."""
            super().data_received(data)
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

    return cast(type[asyncio.Protocol], Door)


def _stop(clock: asyncio.TimerHandle | None) -> None:
    if clock is not None:
        clock.cancel()
