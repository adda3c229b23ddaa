"""The fields of a request's body, from bytes: the base of the models that state them, and what a client is told.

The JSON object is read by `json` and not by pydantic's own parser: that one takes NaN for a number, and its message
about a lone surrogate does not name the field. It looks neither at keys nor into schemas, nor at fields that it does
not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WrapValidator

from .limits import Limits
from .refusal import Refusal

SPELLED = 200  # characters of a path into a body that a refusal repeats
NAMELESS = "a field's name"
PART = 256  # entries of an object that are checked at a time
KINDS = {"string": "a string", "boolean": "a boolean", "array": "a list"}
TOO_LONG = {"too_long": "array_above_max_length", "string_too_long": "string_above_max_length"}
Schema = dict[str, Any]
TOO_LARGE, TOO_MANY = "form_too_large", "body_too_complex"  # OpenAI has no codes for these
# Lists and objects of one body. `json` makes them in one go, in which no other thread runs: 340,000 empty lists, which
# fit into 1 MiB, take half a second, and these a twentieth. A dialogue of 10,000 messages in parts has as many.
CONTAINERS = 1 << 15
_PATTERNS = ("pattern", "regex")
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_LONE = re.compile(rb"\\u[dD][89a-fA-F]")


def parsed(body: bytes) -> dict[str, Any]:
    """The fields of a body as they came; Refusal if it is no JSON object, or one of too many parts."""
    refuse_many(body)
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


def spells_surrogates(text: bytes) -> bool:
    """Whether JSON spells half a surrogate pair, which as UTF-8 it cannot have otherwise; its values are not looked at.

    A megabyte of small values takes a tenth of a second to walk through, in which no other thread runs.
    """
    if b"\\u" not in text:
        return False
    return _LONE.search(_PAIR.sub(b"", text.replace(b"\\\\", b" "))) is not None


def refuse_many(text: bytes, at: str = "") -> None:
    """Refuse JSON, not read yet, that has more lists and objects than `CONTAINERS`; `at` is where it stands."""
    if text.count(b"[") + text.count(b"{") <= CONTAINERS:
        return
    parts = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    outside = b"".join(parts[::2])  # of all strings, as a prompt may hold as many brackets as it likes
    found = outside.count(b"[") + outside.count(b"{")
    if found > CONTAINERS:
        told = f"{at or 'the body'} has {found} lists and objects, and {CONTAINERS} are allowed on this server."
        raise Refusal(400, f"{told} Leave some out, or split the request.", param=at or None, code=TOO_MANY)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def refuse_surrogates(given: Any, at: str = "") -> None:
    """Refuse a JSON value that has a lone surrogate in one of its strings, keys included; `at` is where it stands."""
    try:
        json.dumps(given, ensure_ascii=False).encode()  # the whole at once, which takes a tenth of the time below
        return
    except (ValueError, RecursionError):
        pass
    for path, text in _strings(given):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            where = _spelled(at, path)
            told = f"the lone surrogate {text[error.start]!r} at character {error.start}, which is no Unicode text"
            message = f"{where or NAMELESS} holds {told}; replace it."
            raise Refusal(400, message, param=where or None, code="invalid_value") from None


def _strings(given: Any) -> Iterator[tuple[list[str | int], str]]:
    """Every string of a JSON value with the steps that lead to it; of a key, those to its object.

    Not by recursion, as a body may be nested as deeply as JSON can be read, and with one list of steps for all strings:
    a name of 100 kB above 10,000 values would be a gigabyte if each value were given a path of its own.
    """
    if isinstance(given, str):
        yield [], given
    path: list[str | int] = []
    levels = [_entries(given)]
    while levels:
        step, value = next(levels[-1], (None, None))
        if step is None:  # the end of this list or object, whose own step is the last
            levels.pop()
            del path[-1:]
            continue
        if isinstance(step, str):
            yield path, step
        path.append(step)
        if isinstance(value, str):
            yield path, value
        if isinstance(value, (dict, list)):
            levels.append(_entries(value))
        else:
            path.pop()


def _entries(value: Any) -> Iterator[tuple[str | int, Any]]:
    """What a list or object holds, by index or name; nothing of all else."""
    return iter(value.items()) if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())


def _spelled(at: str, path: list[str | int]) -> str:
    """A path as it is told to a client, no longer than that needs."""
    for step in path:
        if len(at) >= SPELLED:
            break
        at += f"[{step}]" if isinstance(step, int) else f"{'.' if at else ''}{step[:SPELLED]}"
    return at[:SPELLED]


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


class Body(BaseModel):
    """A JSON object: values are taken as they are and never converted, and fields that it does not have are ignored.

    What a field is to be is said by its type, its bounds and its `description`, which completes "expected …" in
    refusals; the server's OpenAPI document is made of the same.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


B = TypeVar("B", bound=Body)


def counted(given: Any) -> Any:
    """A number like 2.0 as the whole number that it is to JSON; all else as it came."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


COUNTED = BeforeValidator(counted)


def _all_counted(given: Any) -> Any:
    if not isinstance(given, list) or set(map(type, given)) == {int}:
        return given
    return [counted(each) for each in given]


ALL_COUNTED = BeforeValidator(_all_counted)
"""The same for a list: of whole numbers it asks once, and not for each of half a million."""


def _by_parts(given: Any, check: Callable[[Any], Any]) -> Any:
    if not isinstance(given, dict) or len(given) <= PART:
        return check(given)
    names = list(given)
    parts = (names[at : at + PART] for at in range(0, len(names), PART))
    return {name: value for part in parts for name, value in check({name: given[name] for name in part}).items()}


FEW_MISTAKES = WrapValidator(_by_parts)
"""For an object of many entries, as `fail_fast` for a list: pydantic would note every wrong one, at a cost for each."""


def read(kind: type[B], values: Mapping[str, Any]) -> B:
    """The fields of a body; the first that is wrong is refused."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        _refuse(error, kind, values)


def wrong(name: str, given: object, expected: str, code: str = "invalid_value") -> NoReturn:
    """Refuse a field, saying what was given and what was expected; `code` is OpenAI's name for the mistake."""
    if given is None:
        raise Refusal(400, f"{name} is missing; expected {expected}.", param=name, code="missing_required_parameter")
    raise Refusal(400, f"{name} is {_short(given)}; expected {expected}.", param=name, code=code)


def _refuse(error: ValidationError, kind: type[Body], values: Mapping[str, Any]) -> NoReturn:
    """Tell the first mistake of a body by its name there, its value, and the schema of the field."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    same = [each for each in found if each["loc"][:1] == found[0]["loc"][:1]]
    # Of the ways to give a field, the one that was meant: where the type is right and something else is not.
    first = next((each for each in same if not each["type"].endswith("_type")), same[0])
    name, given, schema = _located(first["loc"], values, kind)
    if first["type"].startswith("union_tag"):  # of the member that says what the others are
        tag = schema["discriminator"]["propertyName"]
        name, given, schema = f"{name}.{tag}", given.get(tag), {"enum": list(schema["discriminator"]["mapping"])}
    wrong(name, given, _expected(schema), _code(first["type"], counted(given), schema))


def _located(loc: tuple[int | str, ...], values: Any, kind: type[Body]) -> tuple[str, Any, Schema]:
    """The name, value and schema of what an error is about; of a field with several types, the field itself."""
    whole = _schema(kind)
    name, given, schema = "", values, whole
    for step in loc[:-2] if loc[-1] == "[key]" else loc:
        if isinstance(step, int) and "items" in schema:
            name, given, inner = f"{name}[{step}]", given[step], schema["items"]
        elif step in schema.get("properties", ()):
            name, given, inner = f"{name}.{step}", given.get(step), schema["properties"][step]
        elif "patternProperties" in schema:
            (inner,) = schema["patternProperties"].values()
            name, given = f"{name}.{step}", given[step]
        elif step in schema.get("discriminator", {}).get("mapping", ()):
            inner = {"$ref": schema["discriminator"]["mapping"][step]}
        else:
            break
        schema = _opened(inner, whole["$defs"])
    return name.removeprefix("."), given, schema


@cache
def _schema(kind: type[Body]) -> Schema:
    return {"$defs": {}, **kind.model_json_schema()}


def _opened(schema: Schema, definitions: Schema) -> Schema:
    """A schema without null and references; the description of a field stays, that of a model does not."""
    while True:
        kinds = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
        if "$ref" in schema:
            target = definitions[schema["$ref"].rpartition("/")[2]]
            inner = {key: value for key, value in target.items() if key != "description"}
        elif len(kinds) == 1:
            (inner,) = kinds
        else:
            return schema
        schema = {**inner, **{key: value for key, value in schema.items() if key not in ("$ref", "anyOf")}}


def _expected(schema: Schema) -> str:
    """What a field should have been, in words."""
    if "description" in schema:
        return str(schema["description"])
    if "const" in schema or "enum" in schema:
        *others, last = map(str, schema.get("enum") or [schema["const"]])
        return f"{', '.join(others)} or {last}" if others else last
    if schema.get("type") == "number":
        return f"a number from {schema['minimum']:g} to {schema['maximum']:g}"
    if schema.get("type") == "integer":
        return f"a whole number from {schema['minimum']} to {schema['maximum']}"
    return KINDS.get(schema.get("type", ""), "an object")


def _code(kind: str, given: Any, schema: Schema) -> str:
    """OpenAI's code for a mistake, by what pydantic calls it."""
    sizes = {"number": "decimal", "integer": "integer"}.get(schema.get("type", ""))
    if sizes and isinstance(given, int if sizes == "integer" else (int, float)) and not isinstance(given, bool):
        return f"{sizes}_below_min_value" if given < schema["minimum"] else f"{sizes}_above_max_value"
    return "invalid_type" if kind.endswith("_type") else TOO_LONG.get(kind, "invalid_value")


def _short(given: object, most: int = 80) -> str:
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given) if abs(given) < 10**30 else "too large"  # Python refuses to print very long ones
    text = repr(given)
    return text if len(text) <= most else text[:most] + "…"
