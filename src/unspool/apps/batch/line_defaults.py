"""Reading a line: OpenAI's batch line or a bare body, understood as the server understands it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import Field

from ...core.claim import Method
from ...recipes.methods import requested
from ..server.asking import Asking, Understand, chat, completion
from ..server.fields import Body, read
from ..server.limits import Limits
from ..server.refusal import Refusal

URLS: dict[str, Understand] = {"/v1/chat/completions": chat, "/v1/completions": completion}
ENDLESS = 2**31  # tokens: what one's own file asks for is not limited but by the model
TEXTS = 1024  # of one line, for which all of them are kept until the last has ended
LONG = ("max_tokens", "max_completion_tokens")


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
