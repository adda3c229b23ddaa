"""Fields of a request's body, read by type: what is absent or null is None, what is of another type is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ...core.warp.limits import real, whole
from .refusal import Refusal


def wrong(name: str, given: object, expected: str, code: str = "invalid_value") -> NoReturn:
    """Refuse a field, saying what was given and what was expected; `code` is OpenAI's name for the mistake."""
    if given is None:
        raise Refusal(400, f"{name} is missing; expected {expected}.", param=name, code="missing_required_parameter")
    raise Refusal(400, f"{name} is {_short(given)}; expected {expected}.", param=name, code=code)


def too_long(name: str, size: str, expected: str, code: str) -> NoReturn:
    """Refuse a field that is longer than it may be, whose value would be too long to repeat."""
    raise Refusal(400, f"{name} is {size}; expected {expected}.", param=name, code=code)


@dataclass(frozen=True)
class Fields:
    """A JSON object whose values are asked for by name; `inside` is its own name in the body."""

    values: Mapping[str, Any]
    inside: str = ""

    def raw(self, name: str) -> Any:
        """The value as it came."""
        return self.values.get(name)

    def text(self, name: str) -> str | None:
        """A string."""
        given = self.raw(name)
        return given if given is None or isinstance(given, str) else self._mistyped(name, "a string")

    def number(self, name: str, low: float, high: float) -> float | None:
        """A finite number in [low, high]."""
        given = self.raw(name)
        if given is None or real(given, low, high):
            return None if given is None else float(given)
        wrong(self.inside + name, given, f"a number from {low:g} to {high:g}", _out(given, "decimal", low))

    def whole(self, name: str, low: int, high: int) -> int | None:
        """A whole number in [low, high], however it is written."""
        given = counted(self.raw(name))
        if given is None or whole(given, low, high):
            return None if given is None else int(given)
        wrong(self.inside + name, given, f"a whole number from {low} to {high}", _out(given, "integer", low))

    def flag(self, name: str) -> bool:
        """True or false; false if absent."""
        given = self.raw(name)
        return bool(given) if given is None or isinstance(given, bool) else self._mistyped(name, "a boolean")

    def texts(self, name: str) -> tuple[str, ...]:
        """A string or a list of them."""
        given = self.raw(name)
        listed = [] if given is None else [given] if isinstance(given, str) else given
        if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
            self._mistyped(name, "a string or a list of strings")
        return tuple(listed)

    def object(self, name: str) -> Fields | None:
        """A JSON object."""
        given = self.raw(name)
        if given is not None and not isinstance(given, dict):
            self._mistyped(name, "an object")
        return None if given is None else Fields(given, f"{self.inside}{name}.")

    def _mistyped(self, name: str, expected: str) -> NoReturn:
        wrong(self.inside + name, self.raw(name), expected, "invalid_type")


def _out(given: object, kind: str, low: float) -> str:
    """OpenAI's code for a number out of its range, or for what is no number."""
    if isinstance(given, bool) or not isinstance(given, (int, float) if kind == "decimal" else int):
        return "invalid_type"
    return f"{kind}_below_min_value" if given < low else f"{kind}_above_max_value"


def counted(given: Any) -> Any:
    """A number like 2.0 as the whole number that it is to JSON; all else as it came."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _short(given: object, most: int = 80) -> str:
    shown = given if isinstance(given, (str, bool, float, list, dict)) else str(given) if _small(given) else "too large"
    text = shown if isinstance(given, int) and isinstance(shown, str) else repr(shown)
    return text if len(text) <= most else text[:most] + "…"


def _small(given: object) -> bool:
    """Whether a number can be printed at all: Python refuses very long ones."""
    return not isinstance(given, int) or abs(given) < 10**30
