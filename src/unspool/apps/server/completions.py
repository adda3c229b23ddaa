"""The two interfaces that write text: a body in, a response or a stream of events out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from starlette.types import Receive, Scope

from .asking import Asking, Understand
from .counts import client
from .handler import Handler, TrackedResponse
from .refusal import Refusal
from .replies import DONE, Reply, ReplyChoice, line
from .response_stream import ResponseStream
from .server_request import Began, Ended, Wrote
from .tool_calls import ToolCallParser


@dataclass(frozen=True)
class Completions(Handler):
    """One of the interfaces as an ASGI application: `understand` reads its bodies."""

    understand: Understand

    async def _answer(self, call: TrackedResponse, scope: Scope, receive: Receive) -> None:
        limits, values = self.worker.limits, await self._values(scope, receive)
        named = values.get("model")
        if isinstance(named, str) and named != self.house.model:
            message = f"there is no model {named[:80]!r} here; this server has {self.house.model!r}"
            raise Refusal(404, message, param="model", code="model_not_found")
        asking, made = await self._understood(self.understand, values, scope)
        reply = Reply.to(asking, self.house.model, self.worker.lm)
        call.about |= {"id": reply.name, "method": asking.method[:80], "stream": asking.stream}
        took = partial(self.counts.took, scope)
        async with ResponseStream(self.worker, asking, made, receive, limits.seconds, took, client(scope)) as feed:
            began = await feed.next()
            assert isinstance(began, Began)
            call.about |= {"prompt_tokens": began.prompt, "tokens": 0}
            if asking.stream:
                await call.open()
            choices = await self._followed(feed, call, reply, asking)
        if asking.stream:
            if asking.usage:
                await call.push(line(reply.tally(choices, began.prompt)))
            await call.push(DONE, last=True)
        else:
            await call.whole(200, reply.whole(choices, began.prompt))
        call.outcome = "completed"

    async def _followed(
        self, feed: ResponseStream, call: TrackedResponse, reply: Reply, asking: Asking
    ) -> list[ReplyChoice]:
        """Every text until it ends; of a stream, each piece is sent on as it comes."""
        choices = [ReplyChoice(calls=ToolCallParser() if asking.calls else None) for _ in range(feed.request.texts)]
        silent: dict[str, Any] = {"usage": None} if asking.usage else {}

        async def pass_on(chunk: dict[str, Any]) -> None:
            if asking.stream:
                await call.push(line({**chunk, **silent}))

        for index in range(len(choices) if asking.chat else 0):
            await pass_on(reply.opening(index, choices[index]))
        seen = dict.fromkeys(range(len(choices)), 0.0)  # when each text had its last token; 0: it has none
        while any(choice.reason is None for choice in choices):
            news = await feed.next()
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
