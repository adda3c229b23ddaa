"""One call of a client: its response as it is sent, and what is counted and said about it."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Awaitable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from starlette.types import Scope, Send

from .authentication import address
from .counts import ServerMetrics
from .refusal import refusal
from .replies import line
from .request_id import ID
from .response_stream import Left
from .server_log import log, places


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
