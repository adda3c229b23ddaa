"""What a body asks for: a chat completion or a completion, read field by field."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ..errors import BadRequest
from ..lm import Prompt
from ..models.dialogue import Dialogue
from ..settings import Settings
from .fields import Fields, counted, wrong
from .formats import form
from .limits import Limits
from .messages import messages
from .refusal import Refusal
from .sizes import refuse_large
from .tools import Tools, tools

SHORT = 16  # tokens of a completion, unless told: OpenAI's own default
MOST_TOP = 20  # alternatives of a token
MOST_STOPS = 16  # each costs a little at every token
UNSUPPORTED = {
    "functions": "functions are not supported; give them as tools",
    "function_call": "function_call is not supported; give tool_choice",
    "audio": "audio is not supported; this server writes text",
    "suffix": "suffix is not supported; leave it out",
    "echo": "echo is not supported; the prompt is not repeated",
}


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


def parsed(body: bytes) -> Fields:
    """The JSON object of a body."""
    try:
        given = json.loads(body.decode("utf-8"), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8: byte {error.start} cannot be read") from None
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply to be read") from None
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Refusal(400, "the body is not a JSON object; expected one with the fields of the request")
    return Fields(given)


def chat(fields: Fields, limits: Limits, method: str) -> Asking:
    """A body for /v1/chat/completions; `method` is the one for those that name none."""
    shown = fields.whole("top_logprobs", 0, MOST_TOP)
    logprobs = (shown or 0) if fields.flag("logprobs") else None
    if shown and logprobs is None:
        wrong("top_logprobs", shown, "logprobs: true beside it")
    refuse_large("tools", fields.raw("tools"), limits)
    found, offered = messages(fields.raw("messages")), tools(fields)
    prompt = Dialogue(found, offered.shown if offered else ())
    return _asking(fields, True, (prompt,), logprobs, limits, limits.tokens, method, offered)


def completion(fields: Fields, limits: Limits, method: str) -> Asking:
    """A body for /v1/completions."""
    best = fields.whole("best_of", 1, limits.texts)
    if best not in (None, fields.raw("n") or 1):
        wrong("best_of", best, "the same number as n")
    logprobs = fields.whole("logprobs", 0, MOST_TOP)
    return _asking(fields, False, _prompts(fields.raw("prompt")), logprobs, limits, min(SHORT, limits.tokens), method)


def _asking(
    fields: Fields,
    chat: bool,
    prompts: tuple[Prompt, ...],
    logprobs: int | None,
    limits: Limits,
    usual: int,
    method: str,
    offered: Tools | None = None,
) -> Asking:
    for name, why in UNSUPPORTED.items():
        if fields.raw(name) not in (None, False, []):
            raise Refusal(400, why, param=name)
    refuse_large("response_format", fields.raw("response_format"), limits)
    settings = _settings(fields, logprobs, usual)
    if offered is not None:
        if settings.constraint is not None:
            wrong("response_format", fields.raw("response_format"), "none beside tools, which give the text its form")
        settings = replace(settings, constraint=offered.form(settings.max_tokens))
    limits.check(settings.max_tokens, settings.n * len(prompts))
    if len(settings.stop) > MOST_STOPS:
        wrong("stop", settings.stop, f"at most {MOST_STOPS} strings")
    decoding = fields.object("decoding")
    if decoding is not None and decoding.values.keys() - {"method"}:
        wrong("decoding", decoding.values, 'an object with nothing but a method, as in {"method": "lookup:ngram=2"}')
    named = decoding.text("method") if decoding else None
    options = fields.object("stream_options")
    return Asking(
        chat,
        prompts,
        settings,
        method if named is None else named,
        fields.flag("stream"),
        options is not None and options.flag("include_usage"),
        offered is not None,
    )


def _settings(fields: Fields, logprobs: int | None, usual: int) -> Settings:
    temperature = fields.number("temperature", 0, 2)
    limit = fields.whole("max_completion_tokens", 1, 2**31)
    seed = fields.whole("seed", -(2**63), 2**64 - 1)
    most = limit or fields.whole("max_tokens", 1, 2**31) or usual
    try:
        return Settings(
            temperature=1.0 if temperature is None else temperature,
            top_p=fields.number("top_p", 0, 1),
            top_k=fields.whole("top_k", 0, 2**31),
            min_p=fields.number("min_p", 0, 1),
            repetition=fields.number("repetition_penalty", 0.01, 100) or 1.0,
            frequency=fields.number("frequency_penalty", -2, 2) or 0.0,
            presence=fields.number("presence_penalty", -2, 2) or 0.0,
            logit_bias=_biases(fields.object("logit_bias")),
            constraint=form(fields.object("response_format")),
            max_tokens=most,
            stop=fields.texts("stop"),
            seed=secrets.randbits(63) if seed is None else seed % 2**64,
            n=fields.whole("n", 1, 2**31) or 1,
            logprobs=logprobs,
        )
    except BadRequest as error:
        raise Refusal(400, str(error)) from None


def _biases(given: Fields | None) -> dict[int, float]:
    found: dict[int, float] = {}
    for name in () if given is None else given.values:
        if not (name.isascii() and name.isdecimal() and len(name) < 12):
            wrong("logit_bias", name, "a token's number as every key")
        assert given is not None
        found[int(name)] = given.number(name, -100, 100) or 0.0
    return found


def _prompts(given: Any) -> tuple[Prompt, ...]:
    """A text, some tokens, or a list of either."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given, list) and given:
        if all(isinstance(part, str) for part in given):
            return tuple(given)
        if (tokens := _tokens(given)) is not None:
            return (tokens,)
        each = [_tokens(part) if isinstance(part, list) and part else None for part in given]
        if None not in each:
            return tuple(part for part in each if part is not None)
    return wrong("prompt", given, "a string, a list of strings, a list of tokens, or a list of such lists")


def _tokens(given: list[Any]) -> tuple[int, ...] | None:
    tokens = tuple(map(counted, given))
    return tokens if all(isinstance(part, int) and not isinstance(part, bool) for part in tokens) else None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
