"""The keywords of JSON Schema: which a grammar enforces, which it cannot, and which ask nothing of a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from ...core.option import numeral


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


ENFORCED = _names(
    "type enum const anyOf oneOf allOf $ref properties patternProperties additionalProperties required minProperties "
    "maxProperties items prefixItems additionalItems minItems maxItems minLength maxLength pattern format minimum "
    "maximum exclusiveMinimum exclusiveMaximum multipleOf"
)
"""What llguidance 1.9 turns into grammar, where it does not say otherwise."""

UNENFORCED = _names(
    "not if then else dependencies dependentRequired dependentSchemas contains minContains maxContains uniqueItems "
    "unevaluatedItems unevaluatedProperties propertyNames $dynamicRef $dynamicAnchor $recursiveRef $recursiveAnchor"
)
"""What it refuses."""

SILENT = _names(
    "$schema $id id $anchor $defs definitions $vocabulary $comment title description default examples deprecated "
    "readOnly writeOnly contentEncoding contentMediaType contentSchema"
)
"""What asks nothing of a text by the standard itself."""

KNOWN_FORMATS = _names("date-time time date duration email hostname ipv4 ipv6 uuid uri")
"""The formats that llguidance enforces."""

FORMATS = KNOWN_FORMATS | _names(
    "idn-email idn-hostname uri-reference iri iri-reference uri-template json-pointer relative-json-pointer regex"
)
"""The formats that the standard defines; any other asks nothing."""

_NOTES = _names("title description default examples deprecated readOnly writeOnly $comment")
_BESIDE = _names("$ref $schema $defs definitions")
_PARTS = _names(
    "additionalProperties additionalItems contains not if then else propertyNames items unevaluatedItems "
    "unevaluatedProperties"
)
_LISTS = _names("anyOf oneOf allOf prefixItems items")
_TABLES = _names("properties patternProperties $defs definitions dependentSchemas dependencies")


POINTER = 400  # characters of a pointer; each part has one, so that a name of 100 kB above 1000 parts would be 100 MB


def inside(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema, itself first, with its JSON pointer; also those that only a reference leads to."""
    seen: set[int] = set()
    waiting = [("", schema)]
    while waiting:
        begin, part = waiting.pop()
        for at, inner in _within(part, begin):
            if id(inner) in seen:
                continue
            seen.add(id(inner))
            waiting += [found] if (found := target(schema, inner)) else []
            yield at, inner


def _within(schema: Any, at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(schema, dict):
        return
    yield at, schema
    for keyword, value in list(schema.items()):
        under = _below(at, keyword)
        if keyword in _PARTS:
            yield from _within(value, under)
        if keyword in _LISTS and isinstance(value, list):
            for i, part in enumerate(value):
                yield from _within(part, _below(under, str(i)))
        if keyword in _TABLES and isinstance(value, dict):
            for name, part in value.items():
                yield from _within(part, _below(under, name))


def target(schema: Any, part: Mapping[str, Any]) -> tuple[str, Any] | None:
    """The schema that a reference inside the same document leads to, with its JSON pointer; None if none does."""
    reference = part.get("$ref")
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found = schema
    for step in unquote(reference)[2:].split("/") if reference != "#" else ():
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and numeral(name) and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return unquote(reference)[1:][:POINTER], found


def pointless(keyword: str, schema: Mapping[str, Any]) -> bool:
    """True if a keyword, as it is used here, asks nothing of any text."""
    value = schema[keyword]
    match keyword:
        case "uniqueItems":
            return value is False
        case "dependencies" | "dependentRequired" | "dependentSchemas":
            return bool(value == {})
        case "then" | "else":
            return "if" not in schema
        case "if":
            return "then" not in schema and "else" not in schema
        case "minContains" | "maxContains":
            return "contains" not in schema
        case "propertyNames" | "unevaluatedItems" | "unevaluatedProperties":
            return value is True or value == {}
        case "format":
            return value not in FORMATS
    return False


def reference_alone(schema: Any) -> bool:
    """True if by the schema's own draft, which is 7 or older, a reference overrides what stands beside it."""
    draft = schema.get("$schema") if isinstance(schema, dict) else None
    return isinstance(draft, str) and any(old in draft for old in ("draft-03", "draft-04", "draft-06", "draft-07"))


def idle(schema: Mapping[str, Any], alone: bool) -> set[str]:
    """The keywords beside a reference that say nothing: notes, and in old drafts all but places for other schemas."""
    if not isinstance(schema.get("$ref"), str):
        return set()
    return schema.keys() - _BESIDE if alone else schema.keys() & _NOTES


def _below(at: str, name: str) -> str:
    """The JSON pointer of a part, cut off where it is too long to be told."""
    if len(at) >= POINTER:
        return at  # the same string, which costs nothing more
    return f"{at}/{name[:POINTER].replace('~', '~0').replace('/', '~1')}"[:POINTER]
