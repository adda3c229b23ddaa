"""Dialogues: messages with tools that the answer may call, for templates that know tools and for those that do not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CALL, CALLED = "<tool_call>", "</tool_call>"
_BEFORE = "You can call functions. Each line between <tools> and </tools> describes one as JSON:\n<tools>\n"
_BEHIND = (
    "\n</tools>\n"
    "If a function helps to answer, write its name and its arguments as one JSON object, like this, for each call:\n"
    f'{CALL}\n{{"name": "the name", "arguments": {{"parameter": "value"}}}}\n{CALLED}\n'
    "What it returns comes back between <tool_response> and </tool_response>. If no function helps, answer in words."
)


@dataclass(frozen=True)
class Dialogue:
    """Messages as OpenAI writes them, and the tools {type: function, function: …} that the answer may call.

    A message has a role and content, or `tool_calls` whose arguments are objects; one of the role `tool` brings what
    a call gave.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()

    @property
    def has_tools(self) -> bool:
        """Whether tools are offered, were called or have answered."""
        used = any(isinstance(m, Mapping) and (m.get("role") == "tool" or m.get("tool_calls")) for m in self.messages)
        return bool(self.tools) or used


def knows_tools(template: str) -> bool:
    """Whether a chat template writes tools, and calls in the way that is understood here: JSON inside <tool_call>."""
    return "tools" in template and CALL in template and "arguments" in template


def call(name: str, arguments: Any) -> str:
    """A call as text."""
    return f'{CALL}\n{{"name": {json.dumps(name)}, "arguments": {json.dumps(arguments, ensure_ascii=False)}}}\n{CALLED}'


def spelt_out(dialogue: Dialogue) -> list[dict[str, Any]]:
    """The same dialogue in nothing but system, user and assistant messages, for a template that knows no tools."""
    made: list[dict[str, Any]] = []
    after_tool = False
    for message in dialogue.messages:
        content = message.get("content") or ""
        if message["role"] == "tool":
            said = f"<tool_response>\n{content}\n</tool_response>"
            if after_tool:  # one turn for all that came back, as many templates want the roles to alternate
                made[-1]["content"] += "\n" + said
            else:
                made.append({"role": "user", "content": said})
        else:
            calls = [call(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
            made.append({"role": message["role"], "content": "\n".join(filter(None, (content, *calls)))})
        after_tool = message["role"] == "tool"
    if dialogue.tools:
        about = _BEFORE + "\n".join(json.dumps(tool, ensure_ascii=False) for tool in dialogue.tools) + _BEHIND
        if made and made[0]["role"] == "system":
            made[0]["content"] += "\n\n" + about
        else:
            made.insert(0, {"role": "system", "content": about})
    return made
