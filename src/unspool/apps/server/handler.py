"""A handler: whoever answers calls by writing texts, from the body of a request to the line about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ...core.claim import Method
from .asking import Asking, Understand
from .body import read
from .config import ServerConfig
from .counts import ServerMetrics
from .json_body import parsed
from .tracked_response import TrackedResponse
from .worker import Worker


@dataclass(frozen=True)
class Handler(ABC):
    """An ASGI application over a worker; `_answer` is its own."""

    worker: Worker
    counts: ServerMetrics
    house: ServerConfig

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request and write one line about it."""
        call = TrackedResponse(send, self.worker.limits.patience)
        await call.attended(self._answer(call, scope, receive), self.counts, scope)

    @abstractmethod
    async def _answer(self, call: TrackedResponse, scope: Scope, receive: Receive) -> None:
        """Read the request and answer it."""

    async def _understood(self, understand: Understand, values: Mapping[str, Any]) -> tuple[Asking, Method]:
        """What a body asks for, and what decodes it; read beside the loop, so that nobody waits for a large one."""

        def read_and_made() -> tuple[Asking, Method]:
            return understand(values, self.worker.limits, self.house.method).made(self.house.made)

        return await run_in_threadpool(read_and_made)

    async def _values(self, scope: Scope, receive: Receive) -> dict[str, Any]:
        """The body of a request, as it came."""
        limits = self.worker.limits
        return parsed(await read(Request(scope, receive), limits.body, min(limits.patience, limits.seconds)))
