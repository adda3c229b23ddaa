"""Tools: the functions that a request offers, which of them must be called, and the form that this gives a text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import BadRequest
from ...models.dialogue import CALL, CALLED
from ...rules.constrain import Constraint, Form, JsonSchema, Unless, Woven, json_schema
from ...rules.constrain.form import Words
from ...rules.constrain.within import in_time
from .fields import Fields, too_long, wrong
from .refusal import Refusal

MOST = 128  # functions of one request, as with OpenAI
REACH = 256  # tokens of the shortest call, up to which it is seen to that a call ends in time
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
CHOICES = 'none, auto, required or {"type": "function", "function": {"name": …}}'
_ABOUT_OTHERS = ("additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties")
_JOINED = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "minProperties")


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

    def fit(self, words: Words) -> Constraint:
        """The calls over these tokens."""
        heads = [json.dumps(f'\n{{"name": "{function.name}", "arguments": ') for function in self.functions]
        tail = json.dumps(f"}}\n{CALLED}")
        calls = "\n    | ".join(f"{head} @f{i} {tail}" for i, head in enumerate(heads))
        schemas = tuple((f"f{i}", function.enforceable()) for i, function in enumerate(self.functions))
        return Woven(f"start: {self.rule}\ncall: {calls}\n", schemas).fit(words)


@dataclass(frozen=True)
class Timely(Form):
    """A call that is complete within `most` tokens; where the shortest one is very long, it may be cut off instead.

    As `Within`, but the way to an end is looked for in a few hundred tokens alone, since everybody waits for that.
    """

    call: Calling
    most: int

    def fit(self, words: Words) -> Constraint:
        """The call over these tokens, in time."""
        fitted = self.call.fit(words)
        if (found := in_time(fitted, self.most, min(self.most, REACH), words)) is not None:
            return found
        if self.most > REACH:
            return fitted
        raise Refusal(
            400,
            f"no call was found that ends within {self.most} tokens; allow more",
            param="max_tokens",
            code="integer_below_min_value",
        )


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
        one = Timely(Calling(self.callable, f"{first} call"), most)
        return one.then(Calling(self.callable, more)) if self.parallel else one


def tools(fields: Fields) -> Tools | None:
    """The tools of a request; None if it has none or wants none called."""
    given, choice = fields.raw("tools"), fields.raw("tool_choice")
    many = fields.flag("parallel_tool_calls")  # what must be called is called once, unless more is asked for
    parallel = many or fields.raw("parallel_tool_calls") is None
    if given is not None and not isinstance(given, list):
        wrong("tools", given, "a list of functions")
    if not given:
        return wrong("tool_choice", choice, "tools beside it") if choice is not None else None
    if len(given) > MOST:
        too_long("tools", f"a list of {len(given)}", f"at most {MOST} functions", "array_above_max_length")
    known: dict[str, Function] = {}
    for index, tool in enumerate(given):
        function = _function(tool, f"tools[{index}]")
        if function.name in known:
            wrong(f"{function.at}.name", function.name, "a name that no other function has")
        known[function.name] = function
    every = tuple(known.values())
    match choice:
        case "none":
            return None
        case None | "auto":
            return Tools(every, every, False, parallel)
        case "required":
            return Tools(every, every, True, many)
        case {"type": "function", "function": {"name": str(name)}} if name in known:
            return Tools(every, (known[name],), True, False)
        case {"type": "function", "function": {"name": str(name)}}:
            wrong("tool_choice.function.name", name, "the name of one of the tools")
    return wrong("tool_choice", choice, CHOICES)


def _function(tool: Any, at: str) -> Function:
    if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
        wrong(at, tool, '{"type": "function", "function": {"name": …, "parameters": …}}')
    at = f"{at}.function"
    fields = Fields(tool["function"], f"{at}.")
    name, about, schema = fields.text("name"), fields.text("description"), fields.object("parameters")
    if name is None or not NAME.fullmatch(name):
        wrong(f"{at}.name", name, "1 to 64 letters, digits, underscores or dashes")
    fields.flag("strict")  # they are always kept to
    parameters = {"type": "object", "properties": {}} if schema is None else dict(schema.values)
    if parameters.setdefault("type", "object") != "object":
        wrong(f"{at}.parameters.type", parameters["type"], "object, as arguments have names")
    told = {"name": name, "description": about or "", "parameters": parameters}  # some templates fail without
    try:
        return Function(at, name, told, json_schema(_closed(parameters)))
    except BadRequest as error:
        raise Refusal(400, f"the parameters of the function {name!r}: {error}", param=f"{at}.parameters") from None


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without arguments that it does not name, where it says nothing of such: no function expects them."""
    named, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(named, dict) or not isinstance(required, list) or any(name not in named for name in required):
        return schema
    silent = not any(keyword in schema for keyword in (*_ABOUT_OTHERS, *_JOINED))
    return {**schema, "additionalProperties": False} if silent else schema
