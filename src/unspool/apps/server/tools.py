"""Tools: the functions that a request offers, which of them must be called, and the form that this gives a text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from ...core.errors import BadRequest
from ...models.chat_template import CALL, CALLED
from ...rules.constrain import Constraint, Form, JsonSchema, Unless, Woven, json_schema
from ...rules.constrain.form import FormVocabulary
from .fields import Body, wrong
from .refusal import Refusal
from .timely import Timely

MOST = 128  # functions of one request, as with OpenAI
NAME = "^[A-Za-z0-9_-]{1,64}$"
CHOICES = 'none, auto, required or {"type": "function", "function": {"name": …}}'
_ABOUT_OTHERS = ("additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties")
_JOINED = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "minProperties")


class FunctionDefinition(Body):
    """A function that may be called; its arguments always keep to `parameters`, `strict` or not."""

    name: str = Field(pattern=NAME, description="1 to 64 letters, digits, underscores or dashes")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Body):
    """A tool."""

    type: Literal["function"]
    function: FunctionDefinition = Field(description='{"name": …, "parameters": …}')


class FunctionName(Body):
    """A function by its name."""

    name: str = Field(pattern=NAME)


class NamedTool(Body):
    """The tool that is to be called."""

    type: Literal["function"]
    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedTool


@dataclass(frozen=True)
class Function:
    """One function: `at` is its place in the request, `given` how the client described it."""

    at: str
    name: str
    given: Mapping[str, Any]
    parameters: JsonSchema

    def enforceable(self) -> JsonSchema:
        """The schema of its arguments; a refusal that names the function if it cannot be kept to."""
        try:
            self.parameters.enforceable()
        except BadRequest as error:
            raise self._refused(str(error)) from None
        except RecursionError:
            raise self._refused("they are nested too deeply") from None
        return self.parameters

    def _refused(self, why: str) -> Refusal:
        return Refusal(400, f"the parameters of the function {self.name!r}: {why}", param=f"{self.at}.parameters")


@dataclass(frozen=True)
class Calling(Form):
    """Texts of a rule in which `call` calls one of the functions: a name, arguments, and </tool_call>.

    The arguments meet the function's schema.
    """

    functions: tuple[Function, ...]
    rule: str

    def fit(self, words: FormVocabulary) -> Constraint:
        heads = [json.dumps(f'\n{{"name": "{function.name}", "arguments": ') for function in self.functions]
        tail = json.dumps(f"}}\n{CALLED}")
        calls = "\n    | ".join(f"{head} @f{i} {tail}" for i, head in enumerate(heads))
        schemas = tuple((f"f{i}", function.enforceable()) for i, function in enumerate(self.functions))
        return Woven(f"start: {self.rule}\ncall: {calls}\n", schemas).fit(words)


@dataclass(frozen=True)
class Tools:
    """The functions that the model is told of, those that it may call, and whether it must."""

    offered: tuple[Function, ...]
    callable: tuple[Function, ...]
    must: bool
    parallel: bool

    @property
    def shown(self) -> list[dict[str, Any]]:
        """What the model is told."""
        return [{"type": "function", "function": dict(function.given)} for function in self.offered]

    def form(self, most: int) -> Form:
        """What a text of at most so many tokens must be; where a call must be made, the first is complete by then."""
        first, more = json.dumps(CALL), f"({json.dumps(chr(10) + CALL)} call)*"
        if not self.must:
            return Unless(CALL, Calling(self.callable, f"call {more}" if self.parallel else "call"))
        one = Timely(Calling(self.callable, f"{first} call"), most, "max_tokens", "call", optional=True)
        return one.then(Calling(self.callable, more)) if self.parallel else one


def tools(given: Sequence[FunctionTool] | None, choice: ToolChoice | None, many: bool | None) -> Tools | None:
    """The tools of a request that has some, or a choice among them; None if it wants none called.

    `many` says whether several may be called at once; unless told, they may where none must be.
    """
    if not given:
        wrong("tool_choice", _plain(choice), "tools beside it")
    known: dict[str, Function] = {}
    for index, tool in enumerate(given):
        function = _function(tool.function, f"tools[{index}].function")
        if function.name in known:
            wrong(f"{function.at}.name", function.name, "a name that no other function has")
        known[function.name] = function
    every = tuple(known.values())
    match choice:
        case "none":
            return None
        case None | "auto":
            return Tools(every, every, False, many is not False)
        case "required":
            return Tools(every, every, True, many is True)
    name = choice.function.name
    if name not in known:
        wrong("tool_choice.function.name", name, "the name of one of the tools")
    return Tools(every, (known[name],), True, False)


def _plain(choice: ToolChoice | None) -> object:
    return choice.model_dump() if isinstance(choice, NamedTool) else choice


def _function(given: FunctionDefinition, at: str) -> Function:
    parameters = {"type": "object", "properties": {}} if given.parameters is None else dict(given.parameters)
    if parameters.setdefault("type", "object") != "object":
        wrong(f"{at}.parameters.type", parameters["type"], "object, as arguments have names")
    # Some templates fail without any of these.
    told = {"name": given.name, "description": given.description or "", "parameters": parameters}
    try:
        return Function(at, given.name, told, json_schema(_closed(parameters)))
    except BadRequest as error:
        message = f"the parameters of the function {given.name!r}: {error}"
        raise Refusal(400, message, param=f"{at}.parameters") from None


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without arguments that it does not name, where it says nothing of such: no function expects them."""
    named, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(named, dict) or not isinstance(required, list) or any(name not in named for name in required):
        return schema
    silent = not any(keyword in schema for keyword in (*_ABOUT_OTHERS, *_JOINED))
    return {**schema, "additionalProperties": False} if silent else schema
