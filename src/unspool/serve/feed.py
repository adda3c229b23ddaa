"""A feed: the news of one request on the event loop's side; to leave it is to drop the request."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import Receive

from ..errors import UnspoolError
from .asking import Asking
from .errand import Errand
from .news import Failed, News
from .refusal import Refusal
from .worker import Worker


class Left(UnspoolError):
    """The client hung up before its answer was complete."""


class Feed:
    """Hands a request to the worker and brings back what it tells, until the client leaves or time is up.

    The worker's thread only puts calls into the event loop, and the event loop only notes into the worker's queue, so
    neither waits for the other.
    """

    def __init__(self, worker: Worker, asking: Asking, receive: Receive, seconds: float) -> None:
        self._worker, self._receive, self._seconds = worker, receive, seconds
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[News] = asyncio.Queue()
        self.errand = Errand(asking.prompts, asking.settings, asking.method, self._tell)

    async def __aenter__(self) -> Feed:
        self._worker.submit(self.errand)
        late = Refusal(504, f"the answer was not complete after {self._seconds:g} seconds", code="timeout")
        self._clock = self._loop.call_later(self._seconds, self._end, late)
        self._watch = self._loop.create_task(self._until_left())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._clock.cancel()
        self._watch.cancel()
        self._worker.drop(self.errand)

    async def next(self) -> News:
        """What comes next; raises what ended the request before its time."""
        news = await self._news.get()
        if isinstance(news, Failed):
            raise news.error
        return news

    async def _until_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(Left("the client hung up"))

    def _end(self, error: Exception) -> None:
        self._worker.drop(self.errand)  # now, whatever the client has still to be told
        self._news.put_nowait(Failed(error))

    def _tell(self, news: list[News]) -> None:
        with suppress(RuntimeError):  # the loop may have closed by now, with all who listened
            self._loop.call_soon_threadsafe(self._arrived, news)

    def _arrived(self, news: list[News]) -> None:
        for item in news:
            self._news.put_nowait(item)
