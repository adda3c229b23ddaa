"""The messages of a chat: text, calls of tools, and what those gave back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from .fields import Body, wrong
from .surrogates import refuse_surrogates

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
