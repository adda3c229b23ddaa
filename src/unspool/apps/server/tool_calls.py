"""Calls in a text that arrives piece by piece: what was said before them, their names, and their arguments."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...models.chat_template import CALL, CALLED

_HEAD = re.compile(r'\s*\{"name": "([^"]*)", "arguments": ')


@dataclass
class ToolCall:
    """One call so far; its arguments are the text of a JSON object."""

    index: int
    name: str
    arguments: str = ""
    id: str = field(default_factory=lambda: "call_" + secrets.token_hex(12))

    def opening(self) -> dict[str, Any]:
        """The first that a stream tells of it."""
        function = {"name": self.name, "arguments": ""}
        return {"tool_calls": [{"index": self.index, "id": self.id, "type": "function", "function": function}]}

    def more(self, arguments: str) -> dict[str, Any]:
        """What a stream tells of its arguments."""
        return {"tool_calls": [{"index": self.index, "function": {"arguments": arguments}}]}

    def record(self) -> dict[str, Any]:
        """The call in OpenAI's shape."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass
class ToolCallParser:
    """Reads the text of an answer that may call functions; `push` gives deltas of OpenAI's messages.

    What may turn out to begin a call waits, and so do blanks before it, which belong to neither. The first call is told
    as it comes. Every further one waits until it is complete, as an answer that ends before is right without it.
    """

    said: str = ""
    made: list[ToolCall] = field(default_factory=list)
    _held: str = ""
    _call: ToolCall | None = None  # the one that is being read
    _inside: bool = False  # between <tool_call> and </tool_call>
    _arguing: bool = False  # inside the arguments
    _depth: int = 0
    _quoted: bool = False
    _escaped: bool = False

    @property
    def done(self) -> bool:
        """Whether a function was called; not so if the first call is cut off."""
        return bool(self.made) and self._call is not self.made[0]

    def push(self, text: str) -> list[dict[str, Any]]:
        """What is new with some more text."""
        self._held += text
        return list(self._deltas())

    def end(self) -> list[dict[str, Any]]:
        """What was held back in vain, once no more text comes."""
        rest, self._held = self._held, ""
        return self._say("" if self._inside or self.made else rest)

    def _deltas(self) -> Iterator[dict[str, Any]]:
        while self._held:
            before = self._held, self._inside, self._arguing
            if self._arguing:
                yield from self._argue()
            elif self._inside:
                yield from self._open()
            else:
                yield from self._speak()
            if before == (self._held, self._inside, self._arguing):
                break

    def _speak(self) -> list[dict[str, Any]]:
        words, call, behind = self._held.partition(CALL)
        if call:
            self._inside, self._held = True, behind
            return self._say(words.rstrip())
        begun = next((n for n in range(len(CALL) - 1, 0, -1) if self._held.endswith(CALL[:n])), 0)
        words = self._held[: len(self._held) - begun].rstrip()
        self._held = self._held[len(words) :]
        return self._say(words)

    def _open(self) -> list[dict[str, Any]]:
        """The name, or what closes the call."""
        if (head := _HEAD.match(self._held)) is not None:
            self._held, self._arguing = self._held[head.end() :], True
            self._call = ToolCall(len(self.made), head[1])
            return self._tell(self._call, "") if not self.made else []
        _, closed, behind = self._held.partition(CALLED)
        if not closed:
            return []
        self._inside, self._held, call, self._call = False, behind, self._call, None
        return self._tell(call, call.arguments) if call is not None and call not in self.made else []

    def _argue(self) -> list[dict[str, Any]]:
        end = self._end_of_object()
        text, self._held = self._held[:end], self._held[end:]
        assert self._call is not None  # its name came first
        self._call.arguments += text
        return [self._call.more(text)] if self._call in self.made else []

    def _tell(self, call: ToolCall, arguments: str) -> list[dict[str, Any]]:
        self.made.append(call)
        return [call.opening(), *([call.more(arguments)] if arguments else [])]

    def _end_of_object(self) -> int:
        """How much of what is held belongs to the object; it may go on."""
        for position, letter in enumerate(self._held):
            if self._quoted:
                self._quoted = self._escaped or letter != '"'
                self._escaped = letter == "\\" and not self._escaped
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._arguing = False
                    return position + 1
        return len(self._held)

    def _say(self, words: str) -> list[dict[str, Any]]:
        self.said += words
        return [{"content": words}] if words else []
