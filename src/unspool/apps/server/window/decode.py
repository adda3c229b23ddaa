"""POST /window/decode: one text, as a stream of the rounds that it was written in."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope

from ..asking import Asking, chat, completion
from ..call import Call
from ..counts import client
from ..feed import Feed
from ..fields import Fields
from ..handler import Handler
from ..limits import Limits
from ..news import Began, Ended, Showed
from ..refusal import Refusal
from ..replies import DONE, line
from .rounds import Rounds
from .shown import Shown


def understood(fields: Fields, limits: Limits, method: str) -> Asking:
    """A body for the window: that of a chat if it has messages, else that of a completion; for one text, with laws."""
    asking = (chat if fields.raw("messages") is not None else completion)(fields, limits, method)
    if len(asking.prompts) * asking.settings.n != 1:
        raise Refusal(400, "the window shows one text for a request; send several requests instead", param="n")
    return replace(asking, settings=replace(asking.settings, logprobs=0))


class Decode(Handler):
    """The route as an ASGI application."""

    async def _answer(self, call: Call, scope: Scope, receive: Receive) -> None:
        limits, fields = self.worker.limits, await self._fields(scope, receive)
        asking = understood(fields, limits, self.house.method)
        asking, made = await run_in_threadpool(asking.made, self.house.made)
        call.about |= {"method": asking.method[:80], "stream": True}
        took = partial(self.counts.took, scope)
        feed = Feed(self.worker, asking, made, receive, limits.seconds, took, client(scope))
        rounds = self._watched(feed, asking)
        async with feed:
            opening = await feed.next()
            assert isinstance(opening, Began)
            call.about |= {"prompt_tokens": opening.prompt, "tokens": 0}
            await call.open()
            seed = asking.settings.seed
            about = {"model": self.house.model, "method": asking.method, "prompt_tokens": opening.prompt, "seed": seed}
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

    def _watched(self, feed: Feed, asking: Asking) -> Rounds:
        """Have somebody look at the method of a feed that has not begun."""
        errand = feed.errand

        def tell(record: dict[str, Any]) -> None:
            errand.tell([Showed(record)])

        words, stops = self.worker.lm.vocabulary, asking.settings.stop
        rounds = Rounds(words, stops, lambda: errand.writers[0].job, tell)
        errand.method = Shown(errand.method, rounds.look)
        return rounds


def _ended(news: Ended, tail: str) -> dict[str, Any]:
    trace = news.trace.record()
    spent = {**trace["seconds"], "other": trace["seconds"]["overhead"]}
    seconds = {name: spent[name] for name in ("draft", "forward", "rule", "other")}
    return {"reason": news.reason, "tail": tail, "seconds": seconds, "forwards": trace["forwards"]}
