"""Parsing of requests: in slices, so that no connection keeps the event loop, and within a bound of chunks."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from time import perf_counter

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from .refusal import Refusal

SLICE = 1024  # bytes that h11 is given at once: 170 chunks of a byte, which it parses in 2 to 5 milliseconds
TURN = 0.002  # seconds of parsing, of all connections together, after which the event loop does something else
CHUNKS, LEAST = 1024, 64  # chunks of a body: so many, and one more for as many bytes; h11 takes 15 µs for each
UNHEARD = 1 << 20  # bytes that are thrown away for one who was refused, before the connection is cut
LINGER = 2.0  # seconds in which a client that was refused may still send, as one that sends does not hear a refusal


class ParsingTurns:
    """Connections of one server that have bytes to be parsed; they take turns, a slice each."""

    def __init__(self) -> None:
        self._waiting: deque[SlicedConnection] = deque()
        self._due = False

    def add(self, one: SlicedConnection) -> None:
        """Parse what a connection has, beginning in the next round of the event loop."""
        self._waiting.append(one)
        if not self._due:
            self._due = True
            one.loop.call_soon(self._next)

    def _next(self) -> None:
        self._due = False
        began = perf_counter()
        while self._waiting:
            self._waiting.popleft().parse_slice()
            if perf_counter() - began >= TURN:
                break
        if self._waiting and not self._due:
            self._due = True
            self._waiting[0].loop.call_soon(self._next)


class CountingParser(h11.Connection):
    """h11's parser, which counts the chunks of a body."""

    chunks = size = 0

    @property
    def crumbs(self) -> bool:
        """Whether a body comes in too many chunks for its bytes."""
        return self.chunks > CHUNKS + self.size // LEAST

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event, as h11 has it, counted."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.chunks = self.size = 0
        elif isinstance(event, h11.Data):
            self.chunks += event.chunk_start
            self.size += len(event.data)
        return event


class HeldFlow(FlowControl):
    """uvicorn's control of a connection's flow, in which what has come but is not parsed goes first."""

    def __init__(self, connection: SlicedConnection) -> None:
        super().__init__(connection.transport)
        self._connection = connection

    def resume_reading(self) -> None:
        """Go on with what is held back, and read more when that is parsed."""
        if self.read_paused:
            self.read_paused = False
            self._connection.go_on()


class SlicedConnection(H11Protocol):
    """One connection, whose bytes are parsed in slices; it closes after a response to a body that was not all read.

    uvicorn parses all that has come, up to 256 KiB, in one go. In chunks of a byte each that takes most of a second,
    for which nobody needs a key, as it goes on behind a refusal until the body ends.
    """

    conn: CountingParser
    turns: ParsingTurns
    _held: bytearray  # what has come and is not parsed
    _queued = False  # whether it waits for a turn
    _deaf = False  # whether all that comes is thrown away
    _unheard = 0  # bytes that were

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Parse what comes by a parser that counts."""
        super().connection_made(transport)
        self._held = bytearray()
        self.conn = CountingParser(h11.SERVER)
        self.flow = HeldFlow(self)
        self.app = closing_early(self.app, self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was not parsed."""
        self._held.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the first slice, unless others wait before it; the rest waits for its turn."""
        if self._deaf:
            self._unheard += len(data)
            if self._unheard > UNHEARD:
                self.transport.abort()
            return
        self._held += data
        if not self._queued and not self.flow.read_paused:
            self.parse()
        self.go_on()

    def go_on(self) -> None:
        """Read more, once all that came is parsed and the application wants more."""
        if self.transport.is_closing():
            self._held.clear()
        elif self._held:
            self.transport.pause_reading()
            if not self._queued and not self.flow.read_paused:
                self._queued = True
                self.turns.add(self)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def parse_slice(self) -> None:
        """Called when it is this connection's turn."""
        self._queued = False
        try:
            if self._held and not self.flow.read_paused and not self.transport.is_closing():
                self.parse()
            self.go_on()
        except Exception as error:  # as asyncio does with one of `data_received`
            about = {"message": "parsing a request failed", "exception": error, "protocol": self}
            self.loop.call_exception_handler(about)
            self.transport.abort()

    def parse(self) -> None:
        """Parse a slice."""
        piece = bytes(self._held[:SLICE])
        del self._held[:SLICE]
        super().data_received(piece)
        if self.conn.crumbs and not self._deaf:
            self._refuse_crumbs()

    def send_400_response(self, msg: str) -> None:
        """Tell a client that it does not speak HTTP, unless it has been told something already."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _refuse_crumbs(self) -> None:
        """Refuse a body of tiny chunks, of which h11 takes no less time for each than for a large one."""
        self._deaf = True
        self._held.clear()
        self.cycle.disconnected = True  # to the application, which waits for the rest of the body
        self.cycle.message_event.set()
        if self.cycle.response_started:
            self.transport.close()
            return
        told = f"the body came in {self.conn.chunks} chunks for {self.conn.size} bytes"
        refused = Refusal(400, f"{told}; send larger ones, or a Content-Length instead", code="tiny_chunks")
        body = json.dumps(refused.record()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        head = h11.Response(status_code=400, headers=list(headers.items()), reason="Bad Request")
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.loop.call_later(LINGER, self.transport.close)


def closing_early(app: ASGIApp, connection: SlicedConnection) -> ASGIApp:
    """An application that says `Connection: close` when it answers before a body has come, and hears out the rest.

    It does not hear for long: whoever goes on sending for more than `LINGER` seconds is cut off.
    """

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        early = awaited = False

        async def answer(message: Message) -> None:
            nonlocal early, awaited
            if message["type"] == "http.response.start" and connection.conn.their_state is h11.SEND_BODY:
                early, awaited = True, not connection.conn.they_are_waiting_for_100_continue
                kept = [(name, value) for name, value in message.get("headers", ()) if name != b"connection"]
                message = {**message, "headers": [*kept, (b"connection", b"close")]}
            if early and awaited and message["type"] == "http.response.body" and not message.get("more_body"):
                await send({**message, "more_body": True})
                await _hear_out(receive)
                message = {**message, "body": b""}
            await send(message)

        await app(scope, receive, answer)

    return answering


async def _hear_out(receive: Receive) -> None:
    async def rest() -> None:
        while (await receive()).get("more_body"):  # a client that has left says nothing of that
            pass

    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(rest(), LINGER)
