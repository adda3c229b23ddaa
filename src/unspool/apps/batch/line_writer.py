"""A scribe: one engine that answers lines, as many at a time as there is room for."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

from pydantic import Field

from ...api.lm import LM
from ...core.claim import Method
from ...recipes.methods import refuse_session, requested
from ..server.asking import Asking, Understand, chat, completion
from ..server.fields import Body, parsed, read, refuse_surrogates, spells_surrogates, wrong
from ..server.grammar_process import AskerLeft
from ..server.limits import Limits
from ..server.refusal import Refusal, refusal
from ..server.replies import Reply, ReplyChoice
from ..server.server_request import Began, Ended, Failed, ServerRequest, WorkerEvent, Wrote
from ..server.tool_calls import ToolCallParser
from ..server.worker import ShuttingDown, Worker

URLS: dict[str, Understand] = {"/v1/chat/completions": chat, "/v1/completions": completion}
ENDLESS = 2**31  # tokens: what one's own file asks for is not limited but by the model
TEXTS = 1024  # of one line, for which all of them are kept until the last has ended
LONG = ("max_tokens", "max_completion_tokens")
Record: TypeAlias = dict[str, Any]
Told: TypeAlias = Callable[[Record], None]


class Envelope(Body):
    """OpenAI's batch line around a body."""

    method: Literal["POST"] | None = None
    url: Literal["/v1/chat/completions", "/v1/completions"] | None = None
    body: dict[str, Any] = Field(description="an object with the fields of the request")


@dataclass(frozen=True)
class LineDefaults:
    """What is meant where a line says nothing: the model's name, a method, fields of a body, and seeds.

    A body without a seed gets `seed` plus the number of its line, so that it gets the same one whenever it is read.
    Without `tokens`, a text is as long as the server lets it be: 1024 tokens in a chat, else 16.
    """

    model: str
    method: str = "plain"
    values: Mapping[str, Any] = field(default_factory=dict)
    tokens: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        refuse_session(self.method)

    def __call__(self, index: int, line: Mapping[str, Any]) -> Asking:
        """What a line (counted from 0) asks for; Refusal if that cannot be understood."""
        understand, body = _opened(line)
        named = body.get("model")
        if isinstance(named, str) and named != self.model:
            message = (
                f"there is no model {named[:80]!r} here; this one is called {self.model!r}; --name calls it otherwise"
            )
            raise Refusal(404, message, param="model", code="model_not_found")
        if body.get("stream") is True:
            raise Refusal(400, "the line asks for a stream, which a batch has none of; leave it out", param="stream")
        given = {name: value for name, value in body.items() if value is not None}
        if self.tokens is not None and not any(name in given for name in LONG):
            given["max_tokens"] = self.tokens
        unlimited = any(name in given for name in LONG)
        limits = Limits(tokens=ENDLESS, texts=TEXTS) if unlimited else Limits(texts=TEXTS)
        asking = understand({**self.values, **given}, limits, self.method)
        if "seed" in given:
            return asking
        return replace(asking, settings=replace(asking.settings, seed=(self.seed + index + 1) % 2**64))

    def made(self, method: str) -> Method:
        """The method that a line names; it names no file unless it is our own, as lines may be somebody else's."""
        return requested(method, (self.method,))


def _opened(line: Mapping[str, Any]) -> tuple[Understand, Mapping[str, Any]]:
    """How a line is to be understood, and the body in it."""
    if line.get("body") is None and line.get("url") is None:
        return _kind(line), line
    given = read(Envelope, line)
    return _kind(given.body) if given.url is None else URLS[given.url], given.body


def _kind(body: Mapping[str, Any]) -> Understand:
    chats, continues = body.get("messages") is not None, body.get("prompt") is not None
    if chats == continues:
        given = "both messages and a prompt" if chats else "neither messages nor a prompt"
        raise Refusal(400, f"the line has {given}; expected one of them, or OpenAI's batch line with a url and a body")
    return chat if chats else completion


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
            if spells_surrogates(line):
                refuse_surrogates(values)
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
        except (ShuttingDown, AskerLeft):  # it was stopped, and whoever goes on with the batch asks again
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
        known = asking.prediction or ""
        request = ServerRequest(asking.prompts, asking.settings, made, answer.hear, math.inf, predicted=known)
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

    def hear(self, news: list[WorkerEvent]) -> None:
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
