"""Lone surrogates: JSON can spell them (`\\ud800`), but they are no Unicode text, and no tokenizer reads them.

Sought here and not by pydantic, which looks neither at keys nor into schemas, nor at fields that it does not know.
"""

from __future__ import annotations

import json
from typing import Any

from .refusal import Refusal


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
