"""Handlers: who answers calls by writing texts, from the body, read within limits, to the line about it."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.claim import Method
from .asking import Asking, Understand
from .authentication import address
from .counts import ServerMetrics, client
from .fields import parsed, refuse_surrogates, spells_surrogates
from .item_sets import NamedItems
from .limits import Limits
from .refusal import Refusal, refusal
from .replies import DONE, Reply, ReplyChoice, body, line
from .response_stream import Left, ResponseStream
from .server_config import ServerConfig
from .server_log import log, places
from .server_request import Began, Ended, Wrote
from .tool_calls import ToolCallParser
from .worker import GIVEN_UP, ShuttingDown, Worker

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
        except asyncio.CancelledError:  # the server gives up its connections; uvicorn would answer with a bare 500
            await self.refuse(ShuttingDown(GIVEN_UP))
        except BaseException:
            self.outcome = "left"
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
        await self.sent(status, json.dumps(record).encode(), headers)

    async def sent(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """The same with a body that is JSON already."""
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
    config: ServerConfig

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = TrackedResponse(send, self.worker.limits.patience)
        await call.attended(self._answer(call, scope, receive), self.counts, scope)

    def route(self) -> type[APIRoute]:
        """A kind of FastAPI's routes that this answers."""
        handler = self

        class Handled(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Any]]:
                async def answer(_: Request) -> Handler:
                    return handler  # which is called as a response is

                return answer

        return Handled

    @abstractmethod
    async def _answer(self, call: TrackedResponse, scope: Scope, receive: Receive) -> None:
        """Read the request and answer it."""

    async def _understood(self, understand: Understand, scope: Scope, receive: Receive) -> tuple[Asking, Method]:
        """What a body asks for, and what decodes it; read beside the loop, so that nobody waits for a large one."""
        limits, request = self.worker.limits, Request(scope, receive)
        body = await read(request, limits.body, min(limits.patience, limits.seconds))

        def read_and_made() -> tuple[Asking, Method]:
            made = partial(self.config.made, client=client(scope))
            values = parsed(body)
            if spells_surrogates(body):
                refuse_surrogates(values)
            asking = understand(values, limits, self.config.method)
            if isinstance(asking.settings.constraint, NamedItems):
                settings = self.config.items.resolved(asking.settings, self.worker.lm.vocabulary)
                asking = replace(asking, settings=settings)
            return asking.made(made)

        async def gone() -> None:
            if await request.is_disconnected():
                raise Left("the client hung up")

        return await self.config.reading.run(client(scope), read_and_made, limits.seconds, gone)


@dataclass(frozen=True)
class Completions(Handler):
    """One of the two interfaces that write text; `understand` reads its bodies."""

    understand: Understand

    async def _answer(self, call: TrackedResponse, scope: Scope, receive: Receive) -> None:
        limits = self.worker.limits
        asking, made = await self._understood(self._here, scope, receive)
        reply = Reply.to(asking, self.config.model, self.worker.lm)
        call.about |= {"id": reply.name, "method": asking.method[:80], "stream": asking.stream}
        took = partial(self.counts.took, scope)
        async with ResponseStream(self.worker, asking, made, receive, limits.seconds, took, client(scope)) as stream:
            began = await stream.next()
            assert isinstance(began, Began)
            call.about |= {"prompt_tokens": began.prompt, "tokens": 0}
            if asking.stream:
                await call.open()
            choices = await self._followed(stream, call, reply, asking)
        if asking.stream:
            if asking.usage:
                await call.push(line(reply.tally(choices, began.prompt)))
            await call.push(DONE, last=True)
        else:
            await call.sent(200, await self._whole(reply, choices, began.prompt))
        call.outcome = "completed"

    def _here(self, values: Mapping[str, Any], limits: Limits, method: str) -> Asking:
        """What a body asks of this model."""
        named = values.get("model")
        if isinstance(named, str) and named != self.config.model:
            message = f"there is no model {named[:80]!r} here; this server has {self.config.model!r}"
            raise Refusal(404, message, param="model", code="model_not_found")
        return self.understand(values, limits, method)

    async def _whole(self, reply: Reply, choices: list[ReplyChoice], prompt: int) -> bytes:
        """The whole response; with logprobs it may be so large that it is made beside the loop."""

        def made() -> bytes:
            return body(reply.whole(choices, prompt))

        return await run_in_threadpool(made) if reply.logprobs else made()

    async def _followed(
        self, stream: ResponseStream, call: TrackedResponse, reply: Reply, asking: Asking
    ) -> list[ReplyChoice]:
        """Every text until it ends; of a stream, each piece is sent on as it comes."""
        choices = [ReplyChoice(calls=ToolCallParser() if asking.calls else None) for _ in range(stream.request.texts)]
        silent: dict[str, Any] = {"usage": None} if asking.usage else {}

        async def pass_on(chunk: dict[str, Any]) -> None:
            if asking.stream:
                await call.push(line({**chunk, **silent}))

        for index in range(len(choices) if asking.chat else 0):
            await pass_on(reply.opening(index, choices[index]))
        seen = dict.fromkeys(range(len(choices)), 0.0)  # when each text had its last token; 0: it has none
        while any(choice.reason is None for choice in choices):
            news = await stream.next()
            if isinstance(news, Wrote):
                choice = choices[news.index]
                if news.events:
                    seen[news.index] = self._timed(len(news.events), seen[news.index], call.began)
                for chunk in reply.pieces(news.index, choice, news.text, news.events):
                    await pass_on(chunk)
                choice.events += news.events if reply.logprobs and not asking.stream else ()
                call.about["tokens"] += len(news.events)
            elif isinstance(news, Ended):
                choice = choices[news.index]
                choice.reason, choice.trace = news.reason, news.trace
                first = news.trace.seconds_first
                call.about.setdefault("seconds_first", None if first is None else round(first, 4))
                await pass_on(reply.closing(news.index, choice))
        return choices

    def _timed(self, tokens: int, last: float, began: float) -> float:
        """Count how long some tokens of a text took that came just now, the last one before them at `last`."""
        now = perf_counter()
        if last:
            self.counts.more_tokens(now - last, tokens)
        else:
            self.counts.first_token(now - began)
        return now
