"""The messages of a chat, read one by one: text, calls of tools, and what those gave back."""

from __future__ import annotations

import json
from typing import Any

from .fields import Fields, wrong
from .surrogates import refuse_surrogates

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def messages(given: Any) -> list[dict[str, Any]]:
    """A list of messages as chat templates read them."""
    if not isinstance(given, list) or not given:
        wrong("messages", given, "a list of at least one message")
    called: dict[str, str] = {}  # names of functions by the ids of calls
    return [_message(message, f"messages[{index}]", called) for index, message in enumerate(given)]


def _message(given: Any, at: str, called: dict[str, str]) -> dict[str, Any]:
    if not isinstance(given, dict):
        wrong(at, given, "an object with role and content")
    fields = Fields(given, f"{at}.")
    role = fields.text("role")
    if role not in ROLES:
        wrong(f"{at}.role", role, "system, developer, user, assistant or tool")
    made: dict[str, Any] = {"role": ROLES[role]}
    calls = fields.raw("tool_calls") if role == "assistant" else None
    if calls is not None and (found := _calls(calls, f"{at}.tool_calls", called)):
        made["tool_calls"] = found
    if role == "tool":
        made["tool_call_id"] = name = fields.text("tool_call_id")
        if name not in called:
            wrong(f"{at}.tool_call_id", name, "the id of a call in an earlier message of the assistant")
        made["name"] = called[name]
    said = fields.raw("content")
    if said is None and role == "assistant":
        said = ""  # as answers come back that called functions, were cut off or filtered
    return {**made, "content": content(said, f"{at}.content")}


def content(given: Any, at: str) -> str:
    """The text that is given as a string or in parts."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        wrong(at, given, "a string or a list of text parts")
    return "".join(_part(part, at) for part in given)


def _part(part: Any, at: str) -> str:
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        wrong(at, part, 'parts {"type": "text", "text": …}; this server reads text alone')
    text: str = part["text"]
    return text


def _calls(given: Any, at: str, called: dict[str, str]) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        wrong(at, given, "a list of calls")
    made = []
    for index, call in enumerate(given):
        fields = Fields(call if isinstance(call, dict) else wrong(f"{at}[{index}]", call, "a call"), f"{at}[{index}].")
        function, name = fields.object("function"), fields.text("id")
        if name is None:
            wrong(f"{at}[{index}].id", name, "the id that the call had")
        if function is None:
            wrong(f"{at}[{index}].function", None, "an object with name and arguments")
        called[name] = function.text("name") or wrong(f"{at}[{index}].function.name", None, "a name")
        arguments = _arguments(function.text("arguments"), f"{at}[{index}].function.arguments")
        made.append({"id": name, "type": "function", "function": {"name": called[name], "arguments": arguments}})
    return made


def _arguments(given: str | None, at: str) -> dict[str, Any]:
    """The arguments as an object, since templates write them themselves."""
    try:
        found = json.loads(given or "{}", parse_constant=lambda name: wrong(at, name, "numbers that JSON has"))
    except (ValueError, RecursionError):
        found = None
    refuse_surrogates(found, at)  # which a string inside a string may spell once more
    return found if isinstance(found, dict) else wrong(at, given, "a JSON object, written as a string")
