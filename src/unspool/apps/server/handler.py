"""A handler: whoever answers calls by writing texts, from the body of a request to the line about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from .asking import parsed
from .body import read
from .call import Call
from .counts import Counts
from .fields import Fields
from .house import House
from .worker import Worker


@dataclass(frozen=True)
class Handler(ABC):
    """An ASGI application over a worker; `_answer` is its own."""

    worker: Worker
    counts: Counts
    house: House

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request and write one line about it."""
        call = Call(send, self.worker.limits.patience)
        await call.attended(self._answer(call, scope, receive), self.counts, scope)

    @abstractmethod
    async def _answer(self, call: Call, scope: Scope, receive: Receive) -> None:
        """Read the request and answer it."""

    async def _fields(self, scope: Scope, receive: Receive) -> Fields:
        """The body of a request."""
        limits = self.worker.limits
        return parsed(await read(Request(scope, receive), limits.body, min(limits.patience, limits.seconds)))
