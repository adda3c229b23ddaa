"""Formats of strings, told by the same grammars wherever a text is checked; and schemas without what no grammar tells.

Dates and times of RFC 3339 know leap years, and where a leap second may be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from .form import FormVocabulary, spelt
from .keyword import KNOWN_FORMATS, inside
from .matcher import Compiled, engine, tongue

_LONG = r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT = r"(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = r"02-(?:0[1-9]|1[0-9]|2[0-8])"
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = rf"(?:[0-9]{{4}}-(?:{_LONG}|{_SHORT}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
_PART = r"(?:\.[0-9]+)?"
_USUAL = rf"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{_PART}(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
HOSTNAME = 253  # letters that a host name has at most
COUNTED = "min/maxProperties"  # what llguidance counts wrongly once it is told to leave out what it cannot do
_PATTERNED = ("patternProperties", "additionalProperties")  # the second is about what the first does not match
_SIGNS = {
    "patternProperty": _PATTERNED,
    COUNTED: ("minProperties", "maxProperties"),
    "minProperties (": ("minProperties",),
    "Unable to determine if regex": ("pattern",),
}
"""What an error of the compiler says, and what it could do without."""


def _leap_second() -> str:
    """A leap second is the last of a day in UTC; told for offsets of whole hours, which is all that are written."""
    ways = [rf"23:59:60{_PART}[Zz]"]
    for hours in range(24):
        ways.append(rf"{(23 + hours) % 24:02}:59:60{_PART}\+{hours:02}:00")
        ways.append(rf"{(23 - hours) % 24:02}:59:60{_PART}-{hours:02}:00")
    return "|".join(ways)


PATTERNS = {"date": f"^{_DATE}$", "date-time": f"^{_DATE}[Tt](?:{_USUAL}|{_leap_second()})$"}
"""The formats that are better said so: to llguidance every February has 29 days, and every minute 60 seconds."""


def checker(known: Any, words: FormVocabulary) -> Any:
    """What the package jsonschema asks about formats: its own checks, and ours where a grammar knows better.

    jsonschema lets a format pass that it has no check for, which without further packages are most of them.
    """
    made = type(known)(())
    made.checkers = dict(known.checkers)
    for name in KNOWN_FORMATS:
        made.checks(name)(_check(name, words))
    return made


def spell_out(part: dict[str, Any]) -> None:
    """Say in other keywords what llguidance's own format is too lax about, beside whatever else the schema asks."""
    name = part.get("format")
    if name == "hostname":
        most = part.get("maxLength", HOSTNAME)
        part["maxLength"] = min(most, HOSTNAME) if isinstance(most, int) else most
    elif isinstance(name, str) and name in PATTERNS:
        del part["format"]
        if "pattern" not in part:
            part["pattern"] = PATTERNS[name]
        else:
            part["allOf"] = [*part.get("allOf", ()), {"pattern": PATTERNS[name]}]


def _check(name: str, words: FormVocabulary) -> Callable[[Any], bool]:
    def right(value: Any) -> bool:
        if not isinstance(value, str):
            return True
        state = _compiled(name, words).start()
        for token in spelt(json.dumps(value, ensure_ascii=False), words):
            state = state.step(token)
        return state.complete()

    return right


@lru_cache(maxsize=2 * len(KNOWN_FORMATS))
def _compiled(name: str, words: FormVocabulary) -> Compiled:
    schema = {"type": "string", "format": name}
    spell_out(schema)
    grammar = engine().LLMatcher.grammar_from_json_schema(json.dumps(schema))
    return tongue(words).compile(grammar, f"the format {name}")


class Use(NamedTuple):
    """A keyword, and where in the schema it stands, as a JSON pointer."""

    keyword: str
    at: str

    def __str__(self) -> str:
        return f"{self.keyword!r} at {self.at or 'the top'}"


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
