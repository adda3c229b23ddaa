"""The two interfaces that write text: a body in, a response or a stream of events out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from .asking import Asking, parsed
from .body import read
from .counts import Counts
from .feed import Feed, Left
from .fields import Fields
from .house import House
from .journal import log
from .limits import Limits
from .news import Began, Ended, Wrote
from .refusal import Refusal, refusal
from .replies import DONE, Choice, Reply, line
from .worker import Worker

STALL = 60.0  # seconds after which a client that reads nothing has left
Understand = Callable[[Fields, Limits, str], Asking]


@dataclass(frozen=True)
class Completions:
    """One of the interfaces as an ASGI application: `understand` reads its bodies."""

    understand: Understand
    worker: Worker
    counts: Counts
    house: House

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request and write one line about it."""
        call = Call(send)
        began = perf_counter()
        try:
            await self._answer(call, scope, receive)
        except Left:
            call.outcome = "left"
        except Exception as error:
            await call.refuse(error)
        except BaseException:
            call.outcome = "left"  # cancelled: the server gives up its connections
            raise
        finally:
            self.counts.outcomes[call.outcome] += 1
            about = {"path": scope["path"], "status": call.status, "outcome": call.outcome}
            log("request", {**about, **call.about, "seconds": round(perf_counter() - began, 4)})

    async def _answer(self, call: Call, scope: Scope, receive: Receive) -> None:
        limits, request = self.worker.limits, Request(scope, receive)
        fields = parsed(await read(request, limits.body, limits.seconds))
        named = fields.text("model")
        if named is not None and named != self.house.model:
            message = f"there is no model {named[:80]!r} here; this server has {self.house.model!r}"
            raise Refusal(404, message, param="model", code="model_not_found")
        asking = self.understand(fields, limits, self.house.method)
        self.house.check(asking.method)
        vocabulary = self.worker.lm.vocabulary
        reply = Reply(asking.chat, self.house.model, vocabulary, asking.settings.logprobs is not None, asking.method)
        call.about |= {"id": reply.name, "method": asking.method[:80], "stream": asking.stream}
        async with Feed(self.worker, asking, receive, limits.seconds) as feed:
            began = await feed.next()
            assert isinstance(began, Began)
            call.about |= {"prompt_tokens": began.prompt, "tokens": 0}
            if asking.stream:
                await call.open()
            choices = await _followed(feed, call, reply, asking)
        if asking.stream:
            if asking.usage:
                await call.push(line(reply.tally(choices, began.prompt)))
            await call.push(DONE, last=True)
        else:
            await call.whole(200, reply.whole(choices, began.prompt))
        call.outcome = "completed"


async def _followed(feed: Feed, call: Call, reply: Reply, asking: Asking) -> list[Choice]:
    """Every text until it ends; of a stream, each piece is sent on as it comes."""
    choices = [Choice() for _ in range(feed.errand.texts)]
    silent: dict[str, Any] = {"usage": None} if asking.usage else {}

    async def pass_on(chunk: dict[str, Any]) -> None:
        if asking.stream:
            await call.push(line({**chunk, **silent}))

    for index in range(len(choices) if asking.chat else 0):
        await pass_on(reply.opening(index))
    while any(choice.reason is None for choice in choices):
        news = await feed.next()
        if isinstance(news, Wrote):
            choice = choices[news.index]
            if news.text or reply.logprobs:
                await pass_on(reply.piece(news.index, news.text, news.events, len(choice.text)))
            choice.text += news.text
            choice.events += news.events if reply.logprobs and not asking.stream else ()
            call.about["tokens"] += len(news.events)
        elif isinstance(news, Ended):
            choice = choices[news.index]
            choice.reason, choice.trace = news.reason, news.trace
            first = news.trace.seconds_first
            call.about.setdefault("seconds_first", None if first is None else round(first, 4))
            await pass_on(reply.closing(news.index, choice))
    return choices


@dataclass
class Call:
    """One response as it is sent, and what there is to say about it."""

    send: Send
    stall: float = STALL
    status: int = 0  # 0: nothing was sent
    outcome: str = "failed"
    about: dict[str, Any] = field(default_factory=dict)

    async def open(self) -> None:
        """Begin a stream of events."""
        await self._start(200, {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"})

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
        if self.status:
            await self.push(line(refused.record()), last=True)
        else:
            await self.whole(refused.status, refused.record(), refused.headers)

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        named = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": named})
