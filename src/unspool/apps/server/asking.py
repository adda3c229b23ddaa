"""What a request asks for: the fields of a chat or a completion, put into what the engine needs.

What a client expects an answer to be, as OpenAI's predicted outputs, is used as a draft.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from time import thread_time
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from ...api.lm import Prompt
from ...api.settings import Settings
from ...core.claim import SEED, Method
from ...core.errors import BadRequest
from ...models.chat_template import Dialogue
from ...recipes.methods import claim_of
from ...recipes.names import canonical, parts_of
from ...recipes.prediction import predicted
from ...rules.constrain import Form
from .bodies import ChatRequest, CompletionRequest, TextRequest, as_templates_read, form
from .fields import read, refuse_large, wrong
from .item_sets import NamedItems
from .limits import Limits
from .refusal import Refusal
from .server_request import Busy
from .timely import Timely
from .tools import Tools, tools

LONG = 1024  # tokens of a chat's answer, unless told; all of them are held free in the cache, so not the whole context
COPY = "copy"  # the method that drafts what was given
TOKENS = 1 << 15  # of a prediction that are used: no text that people write has more in as many letters
SHORT = 16  # tokens of a completion, unless told: OpenAI's own default
BRIEF = 0.005  # seconds of reading after which nobody rests
LEAD = 3  # seconds of rest for every second of a longer one

T = TypeVar("T")


@dataclass(frozen=True)
class Asking:
    """One request, understood: `chat` is which of the two interfaces it came by."""

    chat: bool
    prompts: tuple[Prompt, ...]
    settings: Settings
    method: str
    stream: bool
    usage: bool  # whether a stream ends with what it took
    calls: bool = False  # whether the text may call functions
    prediction: str | None = None  # what the client expects the text to be
    instead: str | None = None  # the method without the prediction, if the request names none

    @property
    def predicts(self) -> bool:
        """Whether a prediction is used as a draft."""
        return self.prediction is not None and copies(self.method)

    def made(self, make: Callable[[str], Method]) -> tuple[Asking, Method]:
        """The request and what decodes it, by what `make` makes of its method's name.

        If only a prediction asked for that method and `make` refuses it, the prediction is left unused.
        """
        try:
            made = make(self.method)
        except Refusal:
            if self.instead is None:
                raise
            return replace(self, method=self.instead, prediction=None, instead=None).made(make)
        return self, made if self.prediction is None or not self.predicts else predicted(made, self.prediction, TOKENS)


Understand: TypeAlias = Callable[[Mapping[str, Any], Limits, str], Asking]
"""Reads a body, within limits, with a method for those that name none."""


def chat(values: Mapping[str, Any], limits: Limits, method: str) -> Asking:
    """A body for /v1/chat/completions; `method` is the one for those that name none."""
    body = read(ChatRequest, values)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    if body.top_logprobs and logprobs is None:
        wrong("top_logprobs", body.top_logprobs, "logprobs: true beside it")
    refuse_large("tools", values.get("tools"), limits)
    offered = None
    if body.tools or body.tool_choice is not None:
        offered = tools(body.tools, body.tool_choice, body.parallel_tool_calls)
    prompt = Dialogue(as_templates_read(body.messages), offered.shown if offered else ())
    return _asking(values, body, (prompt,), logprobs, limits, LONG, method, offered)


def completion(values: Mapping[str, Any], limits: Limits, method: str) -> Asking:
    """A body for /v1/completions."""
    body = read(CompletionRequest, values)
    if body.best_of not in (None, body.n or 1):
        wrong("best_of", body.best_of, "the same number as n")
    asking = _asking(values, body, _prompts(body.prompt), body.logprobs, limits, SHORT, method)
    return replace(asking, settings=replace(asking.settings, suffix=body.suffix)) if body.suffix else asking


def _asking(
    values: Mapping[str, Any],
    body: TextRequest,
    prompts: tuple[Prompt, ...],
    logprobs: int | None,
    limits: Limits,
    usual: int,
    method: str,
    offered: Tools | None = None,
) -> Asking:
    refuse_large("response_format", values.get("response_format"), limits)
    settings = _settings(body, logprobs, limits, usual)
    if offered is not None:
        if settings.constraint is not None:
            wrong("response_format", values["response_format"], "none beside tools, which give the text its form")
        if body.decoding is not None and body.decoding.within is not None:
            wrong("decoding.within", body.decoding.within, "none beside tools; a call that must be made ends in time")
        settings = replace(settings, constraint=offered.form(settings.max_tokens))
    elif body.decoding is not None and body.decoding.within is not None:
        settings = replace(settings, constraint=_closed(settings, body.decoding.within))
    if body.decoding is not None and body.decoding.heal:
        if not isinstance(body, CompletionRequest) or body.suffix:
            wrong("decoding.heal", True, "a completion without suffix: a message ends where its answer begins")
        settings = replace(settings, heal=True)
    _count(settings.n, len(prompts), limits.texts)
    named = None if body.decoding is None else body.decoding.method
    predicted = None if body.prediction is None else body.prediction.text()
    if predicted is not None and named is not None and not copies(named):
        wrong("prediction", values["prediction"], f"none beside the method {named[:80]!r}; leave one of them out")
    return Asking(
        isinstance(body, ChatRequest),
        prompts,
        settings,
        method_for(predicted, named, method),
        bool(body.stream),
        body.stream_options is not None and bool(body.stream_options.include_usage),
        offered is not None,
        predicted,
        method if predicted is not None and named is None else None,
    )


def _count(n: int, prompts: int, most: int) -> None:
    if prompts > most:
        message = f"prompt is a list of {prompts}; expected at most {most} of them; send several requests."
        raise Refusal(400, message, param="prompt", code="array_above_max_length")
    if n * prompts > most:
        several = f", as there are {prompts} prompts" if prompts > 1 else ""
        wrong("n", n, f"at most {most // prompts} texts{several}; send several requests", "integer_above_max_value")


def _settings(body: TextRequest, logprobs: int | None, limits: Limits, usual: int) -> Settings:
    asked = body.max_completion_tokens or body.max_tokens or usual
    try:
        return Settings(
            temperature=1.0 if body.temperature is None else body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            min_p=body.min_p,
            repetition_penalty=body.repetition_penalty or 1.0,
            frequency_penalty=body.frequency_penalty or 0.0,
            presence_penalty=body.presence_penalty or 0.0,
            logit_bias={int(token): bias or 0.0 for token, bias in (body.logit_bias or {}).items()},
            constraint=_form(body),
            max_tokens=min(asked, limits.tokens),  # what is more is cut, as many clients ask for much
            stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
            seed=secrets.randbits(63) if body.seed is None else body.seed % 2**64,
            n=body.n or 1,
            logprobs=logprobs,
        )
    except BadRequest as error:
        raise Refusal(400, str(error), param=error.param) from None


def _form(body: TextRequest) -> Form | None:
    try:
        return form(body.response_format)
    except BadRequest as error:
        raise Refusal(400, str(error), param="response_format", code="invalid_value") from None


def _closed(settings: Settings, within: int) -> Timely:
    """The form of a text that is to be complete within so many tokens."""
    made = settings.constraint
    if not isinstance(made, Form) or isinstance(made, NamedItems):
        wrong("decoding.within", within, "a response_format of JSON, a regex, a grammar or choices beside it")
    if within > settings.max_tokens:
        wrong("decoding.within", within, f"at most max_tokens, which is {settings.max_tokens}")
    return Timely(made, within)


def _prompts(given: str | list[str] | list[int] | list[list[int]]) -> tuple[Prompt, ...]:
    """A text, some tokens, or several of either."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given[0], int):
        return (tuple(given),)
    return tuple(part if isinstance(part, str) else tuple(part) for part in given)


def method_for(predicted: str | None, named: str | None, usual: str) -> str:
    """The method for a request with or without a prediction, by the one it names and the one for those that name none.

    A prediction asks for `copy` where that gives the text that would come without it; else it is left unused.
    """
    if predicted is None or named is not None:
        return usual if named is None else named
    return COPY if claim_of(usual) is SEED else usual


def copies(method: str) -> bool:
    """Whether a method copies what it is given."""
    (first, *others) = parts_of(canonical(method))
    return first.said == COPY and not others


class ReadingTurns:
    """Runs what reads and checks bodies beside the event loop, one of each client at a time.

    It computes in Python, as the worker does beside it, who then waits for the interpreter at every turn: a megabyte of
    small values takes tenths of a second. So a client whose body took long waits before its next one is read, and
    leaves three quarters of the time to others, however many it sends.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of clients who read or rest

    async def run(self, client: str, work: Callable[[], T], seconds: float, gone: Callable[[], Awaitable[None]]) -> T:
        """What `work` gives, in the client's turn; Busy if that does not come within `seconds`.

        `gone` is awaited when it had to wait for that, and raises if nobody wants the answer any more.
        """
        lock = self._locks.setdefault(client, asyncio.Lock())
        waits = lock.locked()
        try:
            await asyncio.wait_for(lock.acquire(), seconds)
        except asyncio.TimeoutError:
            told = f"what you have sent before takes longer to read than the {seconds:g} seconds that a request has"
            raise Busy(f"{told}; send less at a time") from None
        taken = [0.0]
        try:
            if waits:
                await gone()
            return await asyncio.to_thread(_timed, work, taken)
        finally:
            rest = LEAD * taken[0] if taken[0] > BRIEF else 0.0
            if rest:
                asyncio.get_running_loop().call_later(rest, lock.release)
            else:
                lock.release()


def _timed(work: Callable[[], T], taken: list[float]) -> T:
    began = thread_time()
    try:
        return work()
    finally:
        taken[0] = thread_time() - began
