"""A handler: whoever answers calls by writing texts, from the body, read within limits, to the line about it."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.claim import Method
from .asking import Asking, Understand
from .authentication import address
from .config import ServerConfig
from .counts import ServerMetrics, client
from .json_body import parsed
from .refusal import Refusal, refusal
from .replies import line
from .response_stream import Left
from .server_log import log, places
from .worker import Worker

HEADER = "x-request-id"
ID = "unspool.request_id"  # in the scope of a request
PLAIN = re.compile(rb"[!-~]{1,128}")  # what may be repeated: short, and nothing that could break a line


@dataclass(frozen=True)
class RequestIds:
    """Gives every request an id, the client's own if it sends one that is short and printable, and answers with it."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == HEADER.encode()]
        plain = len(given) == 1 and PLAIN.fullmatch(given[0]) is not None
        name = given[0] if plain else f"req_{secrets.token_hex(16)}".encode()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (HEADER.encode(), name)]}
            await send(message)

        await self.app({**scope, ID: name.decode("ascii")}, receive, answer)


@dataclass
class TrackedResponse:
    """One response as it is sent, and what there is to say about it."""

    send: Send
    stall: float  # seconds after which a client that reads nothing has left
    status: int = 0  # 0: nothing was sent
    outcome: str = "failed"
    about: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=perf_counter)

    async def attended(self, answer: Awaitable[None], counts: ServerMetrics, scope: Scope) -> None:
        """See an answer through, whatever becomes of it; count it and write one line about it."""
        try:
            await answer
        except Left:
            self.outcome = "left"
        except Exception as error:
            await self.refuse(error)
        except BaseException:
            self.outcome = "left"  # cancelled: the server gives up its connections
            raise
        finally:
            seconds = perf_counter() - self.began
            counts.ended(scope, self.outcome, seconds, self.about)
            about = {"path": scope["path"], "status": self.status, "outcome": self.outcome, "client": address(scope)}
            more = {} if self.outcome in ("completed", "failed") else counts.sparing.next()
            if more is not None:
                own = {"request_id": scope.get(ID), **about, **self.about}
                log("request", {**own, "seconds": round(seconds, 4), **more})

    async def open(self) -> None:
        """Begin a stream of events."""
        kind = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        await self._start(200, {**kind, "x-accel-buffering": "no"})  # nginx would hold it back

    async def push(self, data: bytes, last: bool = False) -> None:
        """Send a part of it."""
        try:
            sent = self.send({"type": "http.response.body", "body": data, "more_body": not last})
            await asyncio.wait_for(sent, self.stall)
        except asyncio.TimeoutError:
            raise Left("the client does not read what it asked for") from None

    async def whole(self, status: int, record: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        """Send a response at once."""
        body = json.dumps(record).encode()
        kind = {"content-type": "application/json", "content-length": str(len(body))}
        await self._start(status, {**kind, **(headers or {})})
        await self.push(body, last=True)

    async def refuse(self, error: Exception) -> None:
        """Say what went wrong: by the status, or inside a stream that has begun."""
        refused = refusal(error)
        named = {429: "busy", 408: "timeout", 504: "timeout"}
        self.outcome = named.get(refused.status, "refused" if refused.status < 500 else "failed")
        if refused.code == "internal_error":
            self.about["error"] = type(error).__name__
            self.about["traceback"] = places(traceback.extract_tb(error.__traceback__))
        if self.status:
            await self.push(line(refused.record()), last=True)
        else:
            await self.whole(refused.status, refused.record(), refused.headers)

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        named = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": named})


async def read(request: Request, most: int, seconds: float) -> bytes:
    """The bytes of a JSON body; refuses other kinds of content, too many bytes, and those that do not come in time.

    The kind is asked for because a web page can send any other to a server on this machine without being asked first.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, f"the content type is {kind or 'missing'}; expected application/json", code="content_type")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:18]) > 2 * most:
        raise _large(most)
    try:
        return await asyncio.wait_for(_bytes(request, most), seconds)
    except asyncio.TimeoutError:
        raise Refusal(408, f"the body did not arrive within {seconds:g} seconds", code="timeout") from None
    except ClientDisconnect:
        raise Left("the client hung up") from None


async def _bytes(request: Request, most: int) -> bytes:
    """What comes; a little too much is read to its end, as clients that still send do not hear a refusal."""
    kept, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > 2 * most:
            break
        kept += chunk if size <= most else b""
    if size > most:
        raise _large(most)
    return bytes(kept)


def _large(most: int) -> Refusal:
    return Refusal(413, f"the body is too large; this server reads at most {most} bytes", code="body_too_large")


@dataclass(frozen=True)
class Handler(ABC):
    """An ASGI application over a worker; `_answer` is its own."""

    worker: Worker
    counts: ServerMetrics
    house: ServerConfig

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = TrackedResponse(send, self.worker.limits.patience)
        await call.attended(self._answer(call, scope, receive), self.counts, scope)

    @abstractmethod
    async def _answer(self, call: TrackedResponse, scope: Scope, receive: Receive) -> None:
        """Read the request and answer it."""

    async def _understood(
        self, understand: Understand, values: Mapping[str, Any], scope: Scope
    ) -> tuple[Asking, Method]:
        """What a body asks for, and what decodes it; read beside the loop, so that nobody waits for a large one."""

        def read_and_made() -> tuple[Asking, Method]:
            made = partial(self.house.made, client=client(scope))
            return understand(values, self.worker.limits, self.house.method).made(made)

        return await run_in_threadpool(read_and_made)

    async def _values(self, scope: Scope, receive: Receive) -> dict[str, Any]:
        limits = self.worker.limits
        return parsed(await read(Request(scope, receive), limits.body, min(limits.patience, limits.seconds)))
