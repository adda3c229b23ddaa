"""What a body asks for: a chat completion or a completion, read field by field."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import BadRequest
from ..lm import Prompt
from ..settings import Settings
from .fields import Fields, wrong
from .formats import form
from .limits import Limits
from .refusal import Refusal

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
SHORT = 16  # tokens of a completion, unless told: OpenAI's own default
MOST_TOP = 20  # alternatives of a token
MOST_STOPS = 16  # each costs a little at every token
UNSUPPORTED = {
    "tools": "tools are not supported yet; ask for JSON by response_format instead",
    "functions": "functions are not supported; ask for JSON by response_format instead",
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
    return _asking(fields, True, (_messages(fields.raw("messages")),), logprobs, limits, limits.tokens, method)


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
) -> Asking:
    for name, why in UNSUPPORTED.items():
        if fields.raw(name) not in (None, False, []):
            raise Refusal(400, why, param=name)
    settings = _settings(fields, logprobs, usual)
    limits.check(settings.max_tokens, settings.n * len(prompts))
    if len(settings.stop) > MOST_STOPS:
        wrong("stop", settings.stop, f"at most {MOST_STOPS} strings")
    decoding = fields.object("decoding")
    if decoding is not None and decoding.values.keys() - {"method"}:
        wrong("decoding", decoding.values, 'an object with nothing but a method, as in {"method": "lookup:ngram=2"}')
    options = fields.object("stream_options")
    return Asking(
        chat,
        prompts,
        settings,
        (decoding.text("method") if decoding else None) or method,
        fields.flag("stream"),
        options is not None and options.flag("include_usage"),
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
            repetition=fields.number("repetition_penalty", 0, 1000) or 1.0,
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


def _messages(given: Any) -> list[dict[str, str]]:
    if not isinstance(given, list) or not given:
        wrong("messages", given, "a list of at least one message")
    return [_message(Fields(m, f"messages[{i}].")) if isinstance(m, dict) else _no(i, m) for i, m in enumerate(given)]


def _no(index: int, given: Any) -> NoReturn:
    wrong(f"messages[{index}]", given, "an object with role and content")


def _message(fields: Fields) -> dict[str, str]:
    role = fields.text("role")
    if role not in ROLES:
        wrong(fields.inside + "role", role, "system, developer, user or assistant; tools are not supported yet")
    content = fields.raw("content")
    if isinstance(content, str):
        return {"role": ROLES[role], "content": content}
    if not isinstance(content, list):
        wrong(fields.inside + "content", content, "a string or a list of text parts")
    return {"role": ROLES[role], "content": "".join(_part(part, fields.inside + "content") for part in content)}


def _part(part: Any, name: str) -> str:
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        wrong(name, part, 'parts {"type": "text", "text": …}; this server reads text alone')
    text: str = part["text"]
    return text


def _prompts(given: Any) -> tuple[Prompt, ...]:
    """A text, some tokens, or a list of either."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given, list) and given:
        if all(isinstance(part, str) for part in given):
            return tuple(given)
        if _tokens(given):
            return (tuple(given),)
        if all(isinstance(part, list) and part and _tokens(part) for part in given):
            return tuple(tuple(part) for part in given)
    return wrong("prompt", given, "a string, a list of strings, a list of tokens, or a list of such lists")


def _tokens(given: list[Any]) -> bool:
    return all(isinstance(part, int) and not isinstance(part, bool) for part in given)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
