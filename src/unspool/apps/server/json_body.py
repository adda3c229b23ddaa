"""The JSON object of a body, from bytes; without lone surrogates, and with no form too large to be compiled.

By `json` and not by pydantic's own parser: that one takes NaN for a number, and its message about a lone surrogate does
not name the field. It looks neither at keys nor into schemas, nor at fields that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from .limits import Limits
from .refusal import Refusal

TOO_LARGE = "form_too_large"  # OpenAI has no code for this
_PATTERNS = ("pattern", "regex")


def parsed(body: bytes) -> dict[str, Any]:
    """The fields of a body as they came; Refusal if it is no JSON object."""
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
    return given


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def refuse_surrogates(given: Any, at: str = "") -> None:
    """Refuse a JSON value that has a lone surrogate in one of its strings, keys included; `at` is where it stands."""
    try:
        json.dumps(given, ensure_ascii=False).encode()  # the whole at once, which takes a tenth of the time below
        return
    except (ValueError, RecursionError):
        left = [(at, given)]
    while left:  # not by recursion, as a body may be nested as deeply as JSON can be read
        at, value = left.pop()
        if isinstance(value, str):
            _check(value, at)
        elif isinstance(value, list):
            left += [(f"{at}[{index}]", part) for index, part in enumerate(value)]
        elif isinstance(value, dict):
            for name, part in value.items():
                _check(name, at)
                left.append((f"{at}.{name}" if at else name, part))


def _check(text: str, at: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        told = f"the lone surrogate {text[error.start]!r} at character {error.start}, which is no Unicode text"
        where = at[:200] or "a field's name"
        raise Refusal(400, f"{where} holds {told}; replace it.", param=at[:200] or None, code="invalid_value") from None


def refuse_large(name: str, given: Any, limits: Limits) -> None:
    """Refuse a form, as it came in the field `name`, beyond a limit; it costs one walk over the JSON."""
    if not isinstance(given, (dict, list)):
        return
    properties = values = 0
    for depth, part in _parts(given):
        if depth > limits.form_depth:
            raise _beyond(name, f"is nested deeper than the {limits.form_depth} levels that are allowed", "Use $defs.")
        if isinstance(part, list):
            continue
        named, listed = part.get("properties"), (part.get("enum"), part.get("choices"))
        properties += len(named) if isinstance(named, dict) else 0
        values += sum(len(some) for some in listed if isinstance(some, list))
        patterns = [part.get(key) for key in _PATTERNS]
        patterns += list(part["patternProperties"]) if isinstance(part.get("patternProperties"), dict) else []
        longest = max((len(text) for text in patterns if isinstance(text, str)), default=0)
        if longest > limits.form_pattern:
            told = f"has a regular expression of {longest} characters, and {limits.form_pattern} are allowed"
            raise _beyond(name, told, "Shorten it.")
    size = len(json.dumps(given, ensure_ascii=False).encode("utf-8", "replace"))
    for count, most, what in (
        (size, limits.form_bytes, "bytes"),
        (properties, limits.form_properties, "properties"),
        (values, limits.form_values, "values in enums or choices"),
    ):
        if count > most:
            raise _beyond(name, f"has {count} {what}, and {most} are allowed", "Leave some out, or split the request.")


def _parts(given: Any) -> Iterator[tuple[int, Any]]:
    """Every object and list in it with its level, without recursion."""
    waiting = [(1, given)]
    while waiting:
        depth, part = waiting.pop()
        yield depth, part
        inner = part.values() if isinstance(part, dict) else part
        waiting += [(depth + 1, value) for value in inner if isinstance(value, (dict, list))]


def _beyond(name: str, told: str, advice: str) -> Refusal:
    return Refusal(400, f"{name} {told} on this server. {advice}", param=name, code=TOO_LARGE)
