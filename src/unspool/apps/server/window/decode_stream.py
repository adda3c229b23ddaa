"""POST /window/decode: one text, as a stream of the rounds that it was written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.types import Receive, Scope

from ..asking import Asking, chat, completion
from ..counts import client
from ..handler import Handler, TrackedResponse
from ..limits import Limits
from ..refusal import Refusal
from ..replies import DONE, line
from ..response_stream import ResponseStream
from ..server_request import Began, Ended, Showed
from .rounds import TOP, Rounds, shown


def understood(values: Mapping[str, Any], limits: Limits, method: str) -> Asking:
    """A body for the window: that of a chat if it has messages, else that of a completion; for one text, with laws."""
    asking = (chat if values.get("messages") is not None else completion)(values, limits, method)
    if len(asking.prompts) * asking.settings.n != 1:
        raise Refusal(400, "the window shows one text for a request; send several requests instead", param="n")
    return replace(asking, settings=replace(asking.settings, logprobs=TOP))


class Decode(Handler):
    """The route as an ASGI application."""

    async def _answer(self, call: TrackedResponse, scope: Scope, receive: Receive) -> None:
        limits = self.worker.limits
        asking, made = await self._understood(understood, scope, receive)
        call.about |= {"method": asking.method[:80], "stream": True}
        took = partial(self.counts.took, scope)
        feed = ResponseStream(self.worker, asking, made, receive, limits.seconds, took, client(scope))
        rounds = self._watched(feed, asking)
        async with feed:
            opening = await feed.next()
            assert isinstance(opening, Began)
            call.about |= {"prompt_tokens": opening.prompt, "tokens": 0}
            await call.open()
            seed = asking.settings.seed
            about = {"model": self.config.model, "method": asking.method, "prompt_tokens": opening.prompt, "seed": seed}
            await call.push(line({"began": about}))
            while True:
                news = await feed.next()
                if isinstance(news, Showed):
                    call.about["tokens"] += len(news.record.get("round", {}).get("tokens", ()))
                    await call.push(line(news.record))
                elif isinstance(news, Ended):
                    break
        await call.push(line({"ended": _ended(news, rounds.tail)}))
        await call.push(DONE, last=True)
        call.outcome = "completed"

    def _watched(self, feed: ResponseStream, asking: Asking) -> Rounds:
        """Attach an observer to the method of a stream that has not begun."""
        request = feed.request

        def tell(record: dict[str, Any]) -> None:
            request.tell([Showed(record)])

        words, stops = self.worker.lm.vocabulary, asking.settings.stop
        rounds = Rounds(words, stops, lambda: request.writers[0].job, tell)
        request.method = shown(request.method, rounds.look)
        return rounds


def _ended(news: Ended, tail: str) -> dict[str, Any]:
    trace = news.trace.record()
    spent = {**trace["seconds"], "other": trace["seconds"]["overhead"]}
    seconds = {name: spent[name] for name in ("draft", "forward", "rule", "other")}
    return {"reason": news.reason, "tail": tail, "seconds": seconds, "forwards": trace["forwards"]}
