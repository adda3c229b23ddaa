"""A scribe: one engine that answers lines, as many at a time as there is room for."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from ...api.lm import LM
from ..server.asking import Asking
from ..server.fields import wrong
from ..server.json_body import parsed
from ..server.limits import Limits
from ..server.refusal import Refusal, refusal
from ..server.replies import Reply, ReplyChoice
from ..server.server_request import Began, Ended, Failed, News, ServerRequest, Wrote
from ..server.tool_calls import ToolCallParser
from ..server.worker import ShuttingDown, Worker
from .line_defaults import LineDefaults

Record: TypeAlias = dict[str, Any]
Told: TypeAlias = Callable[[Record], None]


class LineWriter:
    """Answers lines by one worker; `parallel` texts are written at a time, if the cache has room for them.

    Every line gets exactly one record, and what is wrong with it is told there. Claim: a text is the one that the
    library and the server write for the same request.
    """

    def __init__(self, lm: LM, reading: LineDefaults, parallel: int) -> None:
        self.reading = reading
        unlimited = 1 << 30  # it is one's own machine
        self._worker = Worker(lm, Limits(parallel=parallel, queue=unlimited, rows=unlimited, share=1.0))
        self._worker.start()

    def answer(self, index: int, line: bytes, told: Told) -> None:
        """Read a line and queue what it asks for; `told` hears the record, here or in a thread of the worker."""
        name: str | None = None
        try:
            if not line.strip():
                raise Refusal(400, "the line is blank; expected a request")
            values = parsed(line)
            name = _name(values)
            request = self._request(self.reading(index, values), name, told)
            if request.bound:
                self._worker.fit(request).add_done_callback(partial(self._fitted, request, name, told))
            else:
                self._worker.submit(request)
        except Exception as error:
            told(failed(name, error))

    def _fitted(self, request: ServerRequest, name: str | None, told: Told, done: Future[None]) -> None:
        """Queue a line whose grammar has been compiled, in the thread that did it."""
        if done.cancelled():
            return  # nobody waits for it any more
        try:
            done.result()
            self._worker.submit(request)
        except ShuttingDown:
            pass
        except Exception as error:
            told(failed(name, error))

    @property
    def alive(self) -> bool:
        """Whether what was queued will be answered."""
        return self._worker.ready

    def stop(self) -> None:
        """Give up what is being written."""
        self._worker.stop(0.0)

    def _request(self, asking: Asking, name: str | None, told: Told) -> ServerRequest:
        asking, made = asking.made(self.reading.made)
        reply = Reply.to(asking, self.reading.model, self._worker.lm)
        answer = _LineAnswer(reply, name, told)
        request = ServerRequest(asking.prompts, asking.settings, made, answer.hear, math.inf)
        answer.choices = [ReplyChoice(calls=ToolCallParser() if asking.calls else None) for _ in range(request.texts)]
        return request


@dataclass
class _LineAnswer:
    """What has been written for one line so far."""

    reply: Reply
    name: str | None
    told: Told
    choices: list[ReplyChoice] = field(default_factory=list)
    prompt: int = 0

    def hear(self, news: list[News]) -> None:
        for item in news:
            match item:
                case Began(prompt):
                    self.prompt = prompt
                case Wrote(index, text, events):
                    self.choices[index].deltas(text)
                    self.choices[index].events += events if self.reply.logprobs else ()
                case Ended(index, reason, trace):
                    choice = self.choices[index]
                    choice.reason, choice.trace = reason, trace
                    if choice.calls is not None:
                        choice.calls.end()
                    if all(choice.reason is not None for choice in self.choices):
                        self.told(written(self.name, self.reply.whole(self.choices, self.prompt)))
                case Failed(ShuttingDown()):
                    pass  # nobody waits for it any more, and it is to be answered another time
                case Failed(error):
                    self.told(failed(self.name, error))


def written(name: str | None, body: Record) -> Record:
    """The record of a line that was answered, in OpenAI's shape."""
    return _record(name, 200, body, None)


def failed(name: str | None, error: Exception) -> Record:
    """The record of a line that was not: what the server would have answered, and the error once more by itself."""
    refused = refusal(error)
    if refused.code == "internal_error":  # a server keeps such things to itself; this is one's own machine
        refused = Refusal(500, f"{type(error).__name__}: {error}", code=refused.code)
    told = {"code": refused.code or refused.kind, "message": refused.message}
    return _record(name, refused.status, refused.record(), told)


def named(line: bytes) -> str | None:
    """The custom_id of a line, if it has one."""
    try:
        return _name(parsed(line))
    except Refusal:
        return None


def _name(values: Record) -> str | None:
    """The custom_id; it is repeated as it came and read by nobody, so it may hold what no text may."""
    given = values.get("custom_id")
    return given if given is None or isinstance(given, str) else wrong("custom_id", given, "a string", "invalid_type")


def _record(name: str | None, status: int, body: Record, error: Record | None) -> Record:
    request = secrets.token_hex(12)
    response = {"status_code": status, "request_id": request, "body": body}
    return {"id": f"batch_req_{request}", "custom_id": name, "response": response, "error": error}
