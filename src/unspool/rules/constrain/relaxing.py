"""A schema with less in it: what a grammar cannot be made of is taken out, to be checked when the text is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .keyword import inside


class Use(NamedTuple):
    """A keyword, and where in the schema it stands, as a JSON pointer."""

    keyword: str
    at: str

    def __str__(self) -> str:
        return f"{self.keyword!r} at {self.at or 'the top'}"


COUNTED = "min/maxProperties"  # what llguidance counts wrongly once it is told to leave out what it cannot do
_PATTERNED = ("patternProperties", "additionalProperties")  # the second is about what the first does not match
_SIGNS = {
    "patternProperty": _PATTERNED,
    COUNTED: ("minProperties", "maxProperties"),
    "minProperties (": ("minProperties",),
    "Unable to determine if regex": ("pattern",),
}
"""What an error of the compiler says, and what it could do without."""


def relax(schema: Any, error: str, readable: Callable[[str], bool]) -> list[Use]:
    """Take out of a schema, in place, what the compiler's error is about; [] if it is about nothing that could go.

    Every text that the schema accepts is accepted by what is left of it. `readable` tells a regular expression that the
    compiler can use.
    """
    return [*_relaxed(schema, error, readable)]


def _relaxed(schema: Any, error: str, readable: Callable[[str], bool]) -> Iterator[Use]:
    wanted = {keyword for sign, keywords in _SIGNS.items() if sign in error for keyword in keywords}
    for at, part in list(inside(schema)):
        names = wanted & part.keys()
        if "regex" in error and isinstance(part.get("pattern"), str) and not readable(part["pattern"]):
            names.add("pattern")
        if "regex" in error and not all(map(readable, part.get("patternProperties", ()))):
            names |= part.keys() & set(_PATTERNED)
        if names & {"patternProperties"}:
            names |= part.keys() & {"additionalProperties"}
        elif "patternProperty" in error:
            names -= {"additionalProperties"}
        if "circular references with sibling keys" in error and "$ref" in part:
            names |= part.keys() - {"$ref", "$defs", "definitions", "$schema", "$id", "id", "title", "description"}
        for name in sorted(names):
            del part[name]
            yield Use(name, at)
