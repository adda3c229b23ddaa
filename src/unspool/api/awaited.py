"""Texts for programs that use asyncio: forwards run in another thread, one at a time for each model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from threading import Lock

from .writer import Event, Output


async def generate(lock: Lock, write: Callable[[], Output]) -> Output:
    """A text, while the loop goes on; one that is cancelled is still written to its end, and nobody gets it."""

    def alone() -> Output:
        with lock:
            return write()

    return await asyncio.to_thread(alone)


async def events(lock: Lock, stream: Generator[Event, None, Output]) -> AsyncGenerator[Event, None]:
    """The events of a stream; whoever leaves early ends the text after the forward that is under way."""

    def following() -> Event | None:
        with lock:
            return next(stream, None)

    step: asyncio.Future[Event | None] | None = None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(following))
            if (event := await asyncio.shield(step)) is None:
                return
            yield event
    finally:
        if step is not None and not step.done():
            await asyncio.wait([step])
        stream.close()
