"""Sizes: how large the form is that a request gives its texts, and whether that is too large to be compiled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .limits import Limits
from .refusal import Refusal

TOO_LARGE = "form_too_large"  # OpenAI has no code for this
_PATTERNS = ("pattern", "regex")


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
