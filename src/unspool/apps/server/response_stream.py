"""The events of one request on the event loop's side; to leave it is to drop the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from starlette.types import Receive

from ...core.claim import Method
from ...core.errors import BadRequest, UnspoolError
from .asking import Asking
from .grammar_process import AskerLeft
from .refusal import Refusal
from .server_request import Began, Busy, Failed, ServerRequest, WorkerEvent, Wrote
from .worker import ShuttingDown, Worker


class Left(UnspoolError):
    """The client hung up before its answer was complete."""


class ResponseStream:
    """Hands a request to the worker and brings back what it tells, until the client leaves or time is up.

    The worker's thread only puts calls into the event loop, and the event loop only notes into the worker's queue, so
    neither waits for the other. `took` hears of tokens, read and written, before the client does.
    """

    def __init__(
        self,
        worker: Worker,
        asking: Asking,
        method: Method,
        receive: Receive,
        seconds: float,
        took: Callable[[int], None] = lambda tokens: None,
        client: str = "",
    ) -> None:
        self._worker, self._receive, self._seconds, self._took = worker, receive, seconds, took
        self._form = "tools" if asking.calls else "response_format"  # what its grammar is made of
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[WorkerEvent] = asyncio.Queue()
        self._handing: asyncio.Task[None] | None = None  # while its form is being fitted
        owner = "" if worker.limits.share_prefixes else client
        known = asking.prediction or ""
        self.request = ServerRequest(
            asking.prompts, asking.settings, method, self._tell, client=client, owner=owner, predicted=known
        )

    async def __aenter__(self) -> ResponseStream:
        if (wait := self._worker.waiting.wait(self.request.client)) > self._seconds:
            raise Busy(f"your requests that wait already will take about {wait:.0f} seconds, more than one has", wait)
        fitted = self._worker.fit(self.request) if self.request.bound else None
        if fitted is None:
            self._worker.submit(self.request)
        else:
            self._handing = self._loop.create_task(self._hand_over(fitted))
        late = Refusal(504, f"the answer was not complete after {self._seconds:g} seconds", code="timeout")
        self._clock = self._loop.call_later(self._seconds, self._end, late)
        self._watch = self._loop.create_task(self._until_left())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._clock.cancel()
        self._watch.cancel()
        self._leave()

    async def next(self) -> WorkerEvent:
        """What comes next; raises what ended the request before its time."""
        news = await self._news.get()
        if isinstance(news, Failed):
            raise news.error
        return news

    async def _hand_over(self, fitted: Future[None]) -> None:
        """Give the request to the worker once its form has been fitted."""
        try:
            await asyncio.wrap_future(fitted)
            self._worker.submit(self.request)
        except BadRequest as error:
            self._news.put_nowait(Failed(BadRequest(str(error), error.param or self._form)))
        except (asyncio.CancelledError, AskerLeft) as error:  # by who leaves, to whom it is no news, or at the end
            told = "the server is shutting down; send the request to another, or later"
            self._news.put_nowait(Failed(ShuttingDown(told)))
            if isinstance(error, asyncio.CancelledError):
                raise
        except Exception as error:
            self._news.put_nowait(Failed(error))

    async def _until_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(Left("the client hung up"))

    def _end(self, error: Exception) -> None:
        self._leave()  # now, whatever the client has still to be told
        self._news.put_nowait(Failed(error))

    def _leave(self) -> None:
        if self._handing is not None:
            self._handing.cancel()
        self._worker.drop(self.request)

    def _tell(self, news: list[WorkerEvent]) -> None:
        with suppress(RuntimeError):  # the loop may have closed by now, with all who listened
            self._loop.call_soon_threadsafe(self._arrived, news)

    def _arrived(self, news: list[WorkerEvent]) -> None:
        for item in news:
            if isinstance(item, (Began, Wrote)):
                self._took(item.prompt if isinstance(item, Began) else len(item.events))
            self._news.put_nowait(item)
