"""What a body asks for: a chat completion or a completion, read field by field."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ...api.lm import Prompt
from ...api.settings import Settings
from ...core.claim import Method
from ...core.errors import BadRequest
from ...models.dialogue import Dialogue
from ...rules.constrain import Form
from .fields import Fields, counted, too_long, wrong
from .formats import form
from .limits import Limits
from .messages import messages
from .prediction import Predicted, copies, method_for, prediction
from .refusal import Refusal
from .sizes import refuse_large
from .surrogates import refuse_surrogates
from .tools import Tools, tools

LONG = 1024  # tokens of a chat's answer, unless told; all of them are held free in the cache, so not the whole context
SHORT = 16  # tokens of a completion, unless told: OpenAI's own default
ENDLESS = 2**31  # more than any number of tokens or texts
MOST_TOP = 20  # alternatives of a token
MOST_STOPS = 16  # each costs a little at every token
UNSUPPORTED = {
    "functions": "functions are not supported; give them as tools",
    "function_call": "function_call is not supported; give tool_choice",
    "audio": "audio is not supported; this server writes text",
    "suffix": "suffix is not supported; leave it out",
    "echo": "echo is not supported; the prompt is not repeated",
}


MISPLACED = {  # ours, where they would be ignored
    "method": 'give it as "decoding": {"method": …}',
    "json_schema": 'give it as "response_format": {"type": "json_schema", "json_schema": {"schema": …}}',
    "regex": 'give it as "response_format": {"type": "regex", "regex": …}',
    "grammar": 'give it as "response_format": {"type": "grammar", "grammar": …}',
    "choices": 'give them as "response_format": {"type": "choices", "choices": […]}',
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
        return self, made if self.prediction is None or not self.predicts else Predicted(made, self.prediction)


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
    refuse_surrogates(fields.values)
    shown = fields.whole("top_logprobs", 0, MOST_TOP)
    logprobs = (shown or 0) if fields.flag("logprobs") else None
    if shown and logprobs is None:
        wrong("top_logprobs", shown, "logprobs: true beside it")
    refuse_large("tools", fields.raw("tools"), limits)
    found, offered = messages(fields.raw("messages")), tools(fields)
    prompt = Dialogue(found, offered.shown if offered else ())
    return _asking(fields, True, (prompt,), logprobs, limits, LONG, method, offered)


def completion(fields: Fields, limits: Limits, method: str) -> Asking:
    """A body for /v1/completions."""
    refuse_surrogates(fields.values)
    best = fields.whole("best_of", 1, limits.texts)
    if best not in (None, fields.raw("n") or 1):
        wrong("best_of", best, "the same number as n")
    logprobs = fields.whole("logprobs", 0, MOST_TOP)
    return _asking(fields, False, _prompts(fields.raw("prompt")), logprobs, limits, SHORT, method)


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
            raise Refusal(400, why, param=name, code="unsupported_parameter")
    for name, where in MISPLACED.items():
        if fields.raw(name) is not None:
            raise Refusal(400, f"{name} stands where it is not read; {where}", param=name, code="unknown_parameter")
    refuse_large("response_format", fields.raw("response_format"), limits)
    settings = _settings(fields, logprobs, limits, usual)
    if offered is not None:
        if settings.constraint is not None:
            wrong("response_format", fields.raw("response_format"), "none beside tools, which give the text its form")
        settings = replace(settings, constraint=offered.form(settings.max_tokens))
    _count(settings.n, len(prompts), limits.texts)
    decoding = fields.object("decoding")
    if decoding is not None and decoding.values.keys() - {"method"}:
        wrong("decoding", decoding.values, 'an object with nothing but a method, as in {"method": "lookup:ngram=2"}')
    named, predicted = decoding.text("method") if decoding else None, prediction(fields)
    if predicted is not None and named is not None and not copies(named):
        wrong("prediction", fields.raw("prediction"), f"none beside the method {named[:80]!r}; leave one of them out")
    options = fields.object("stream_options")
    return Asking(
        chat,
        prompts,
        settings,
        method_for(predicted, named, method),
        fields.flag("stream"),
        options is not None and options.flag("include_usage"),
        offered is not None,
        predicted,
        method if predicted is not None and named is None else None,
    )


def _count(n: int, prompts: int, most: int) -> None:
    """Refuse a request for too many texts."""
    if prompts > most:
        expected = f"at most {most} of them; send several requests"
        too_long("prompt", f"a list of {prompts}", expected, "array_above_max_length")
    if n * prompts > most:
        several = f", as there are {prompts} prompts" if prompts > 1 else ""
        wrong("n", n, f"at most {most // prompts} texts{several}; send several requests", "integer_above_max_value")


def _settings(fields: Fields, logprobs: int | None, limits: Limits, usual: int) -> Settings:
    temperature = fields.number("temperature", 0, 2)
    seed = fields.whole("seed", -(2**63), 2**64 - 1)
    older, newer = fields.whole("max_tokens", 1, ENDLESS), fields.whole("max_completion_tokens", 1, ENDLESS)
    stop = fields.texts("stop")
    if len(stop) > MOST_STOPS:
        too_long("stop", f"a list of {len(stop)}", f"at most {MOST_STOPS} strings", "array_above_max_length")
    if "" in stop:
        wrong("stop", "", "strings of at least one character")
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
            constraint=_form(fields),
            max_tokens=min(newer or older or usual, limits.tokens),  # what is more is cut, as many clients ask for much
            stop=stop,
            seed=secrets.randbits(63) if seed is None else seed % 2**64,
            n=fields.whole("n", 1, ENDLESS) or 1,
            logprobs=logprobs,
        )
    except BadRequest as error:
        raise Refusal(400, str(error), param=error.param) from None


def _form(fields: Fields) -> Form | None:
    try:
        return form(fields.object("response_format"))
    except BadRequest as error:
        raise Refusal(400, str(error), param="response_format", code="invalid_value") from None


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
