"""The JSON object of a body, from bytes.

By `json` and not by pydantic's own parser: that one takes NaN for a number, and its message about a lone surrogate does
not name the field.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from .refusal import Refusal


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
