"""Fields of a request's body: the base of the models that state them, and what a client is told of a wrong one.

The messages of a chat, which several bodies hold: text, calls of tools, and what those gave back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator

from .json_body import refuse_surrogates
from .refusal import Refusal

PART = 256  # entries of an object that are checked at a time
KINDS = {"string": "a string", "boolean": "a boolean", "array": "a list"}
TOO_LONG = {"too_long": "array_above_max_length", "string_too_long": "string_above_max_length"}
Schema = dict[str, Any]


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


PARTS = 'a string or a list of parts {"type": "text", "text": …}; this server reads text alone'


class TextPart(Body):
    """A part of what is said."""

    type: Literal["text"]
    text: str


Parts = Annotated[list[TextPart], Field(max_length=1024, fail_fast=True)]
Content = Annotated[str | Parts, Field(description=PARTS)]


class CalledFunction(Body):
    """The function of a call and its arguments, a JSON object written as a string."""

    name: str = Field(min_length=1, description="a name")
    arguments: str | None = None


class MessageToolCall(Body):
    """A call that the assistant made."""

    id: str = Field(description="the id that the call had")
    function: CalledFunction = Field(description="an object with name and arguments")


class SpokenMessage(Body):
    """What somebody says to the assistant."""

    role: Literal["system", "developer", "user"]
    content: Content


class AssistantMessage(Body):
    """What the assistant said, or called; nothing where its answer was cut off or filtered."""

    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: Annotated[list[MessageToolCall], Field(fail_fast=True)] | None = Field(
        None, description="a list of calls"
    )


class ToolMessage(Body):
    """What a call gave back."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str = Field(description="the id of a call in an earlier message of the assistant")


Message = Annotated[SpokenMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


def text_of(content: str | Sequence[TextPart]) -> str:
    """The text that is given as a string or in parts."""
    return content if isinstance(content, str) else "".join(part.text for part in content)


def as_templates_read(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as plain data for chat templates; refuses what gives back a call that nobody made."""
    called: dict[str, str] = {}  # names of functions by the ids of calls
    made: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        role = "system" if message.role == "developer" else message.role
        record: dict[str, Any] = {"role": role, "content": text_of(message.content or "")}
        if isinstance(message, AssistantMessage) and message.tool_calls:
            record["tool_calls"] = [
                _call(call, f"messages[{index}].tool_calls[{i}]") for i, call in enumerate(message.tool_calls)
            ]
            called |= {call.id: call.function.name for call in message.tool_calls}
        if isinstance(message, ToolMessage):
            name = message.tool_call_id
            if name not in called:
                expected = "the id of a call in an earlier message of the assistant"
                wrong(f"messages[{index}].tool_call_id", name, expected)
            record |= {"tool_call_id": name, "name": called[name]}
        made.append(record)
    return made


def _call(call: MessageToolCall, at: str) -> dict[str, Any]:
    arguments = _arguments(call.function.arguments, f"{at}.function.arguments")
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def _arguments(given: str | None, at: str) -> dict[str, Any]:
    """The arguments as an object, since templates write them themselves."""
    try:
        found = json.loads(given or "{}", parse_constant=lambda name: wrong(at, name, "numbers that JSON has"))
    except (ValueError, RecursionError):
        found = None
    refuse_surrogates(found, at)  # which a string inside a string may spell once more
    return found if isinstance(found, dict) else wrong(at, given, "a JSON object, written as a string")
