"""Chat templates: messages, with tools the answer may call, written as the text a model was tuned on, in a sandbox.

Control tokens come only where the template put them, whatever the messages spell.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from tokenizers import AddedToken, Tokenizer

from ..core.errors import BadModel, BadRequest
from .bounded import BUDGET, BoundedEnvironment, Budget, Exhausted, weight
from .template_filters import BOUNDED

Value = TypeVar("Value")

WIDE = 16  # blanks by which JSON may be indented
CALL, CALLED = "<tool_call>", "</tool_call>"
_BEFORE = "You can call functions. Each line between <tools> and </tools> describes one as JSON:\n<tools>\n"
_BEHIND = (
    "\n</tools>\n"
    "If a function helps to answer, write its name and its arguments as one JSON object, like this, for each call:\n"
    f'{CALL}\n{{"name": "the name", "arguments": {{"parameter": "value"}}}}\n{CALLED}\n'
    "What it returns comes back between <tool_response> and </tool_response>. If no function helps, answer in words."
)
_ONE_AT_A_TIME = Lock()


class _Refused(Exception):
    """The template itself said that it cannot write these messages."""


class _Generation(Extension):  # type: ignore[misc]  # jinja2 is skipped by the type checker
    """The block {% generation %}, which marks for training what the model wrote; for rendering it is its content."""

    tags = {"generation"}  # noqa: RUF012 (the name and kind that jinja2 looks for)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Keep the content of the block and drop the marks."""
        next(parser.stream)
        body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return body


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    reply: bool = True,
    names: Mapping[str, str] | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Render messages of {role, content}; `names` gives the template its token names (bos_token, eos_token, ...)."""
    refuse_unreadable(messages)
    compiled = _compile(template)
    given: dict[str, object] = {"messages": [_joined(message) for message in messages], "add_generation_prompt": reply}
    given.update(tools=list(tools) or None, documents=None, **(names or {}))
    given[BUDGET] = Budget()
    try:
        return "".join(compiled.generate(given))
    except Exhausted as error:
        raise BadModel(
            f"The model's chat template does not come to an end on these messages: {error}. Send fewer or shorter "
            "messages, or use a plain prompt instead."
        ) from error
    except _Refused as error:
        raise BadRequest(
            f"The model's chat template refuses these messages: {error}. Change their roles or order."
        ) from error
    except SecurityError as error:
        raise BadModel(
            f"The model's chat template tries something unsafe ({error}). Do not trust this model file."
        ) from error
    except Exception as error:  # a template is a program from a file: it can fail in any way
        why = f"{error}" or type(error).__name__  # some, as MemoryError, say nothing
        raise BadModel(
            f"The model's chat template fails on these messages ({why}). Use a plain prompt instead."
        ) from error


def refuse_unreadable(messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what are no messages."""
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or "content" not in message:
            raise BadRequest(f"Message {index} is {message!r}; expected a mapping with 'role' and 'content'.")
        said = message["content"]
        silent = said is None and message["role"] == "assistant"  # which may have called functions instead
        if not (silent or isinstance(said, (str, list))):
            raise BadRequest(f"The content of message {index} is {said!r:.80}; expected a text.")
        for part in said if isinstance(said, list) else ():
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            if kind != "text" or not isinstance(part.get("text"), str):  # templates would put in a mark of a picture
                raise BadRequest(
                    f"The content of message {index} has a part of the type {kind!r:.40}; texts alone are read, no "
                    "pictures, sound or videos. Give a text, or parts {'type': 'text', 'text': …}."
                )


def _joined(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose content is one text, which is what every template reads."""
    said = message.get("content")
    return {**message, "content": "".join(part["text"] for part in said)} if isinstance(said, list) else dict(message)


@lru_cache(maxsize=16)
def _compile(template: str) -> Template:
    environment = BoundedEnvironment(BOUNDED, [loopcontrols, _Generation])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    try:
        return environment.from_string(template)
    except Exception as error:  # jinja2 lets RecursionError and others through
        why = f"{error}" or type(error).__name__
        raise BadModel(f"The model's chat template is not valid Jinja ({why}). Use a plain prompt instead.") from error


def _refuse(message: str) -> None:
    raise _Refused(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON without the HTML escapes of Jinja's own filter, since a prompt is not a web page."""
    weight(value)
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= WIDE):
        raise SecurityError(f"tojson indents by {indent!r:.20}; expected a number up to {WIDE}")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


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
        content = _joined(message).get("content") or ""
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


def read_long(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a long text, while other threads go on; one text at a time, or a few would take all cores."""
    with _ONE_AT_A_TIME:
        ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return ids


class Fences:
    """Keeps the names of control tokens inside messages apart from those of a template.

    Before rendering, `hide` writes a secret in place of each name that a message holds. What the rendering then names
    is the template's own: `encode` puts for it a token that no text can spell, restores the hidden names as plain text,
    and reads the whole at once, so that all else has the tokens that it always has.
    """

    def __init__(self, tokenizer: Tokenizer, special: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._names = {str(name): token for token in special if (name := tokenizer.id_to_token(token))}
        self._longest_first = "|".join(map(re.escape, sorted(self._names, key=len, reverse=True)))
        self._secret = secrets.token_hex(8)  # what strangers cannot guess, they cannot write
        self._reader: Tokenizer | None = None
        self._controls: dict[int, int] = {}

    def suspects(self, value: object) -> bool:
        """Whether some string of a value, however deep, would be read as a control token."""
        found = False

        def look(text: str) -> str:
            nonlocal found
            found = found or any(name in text for name in self._names) or self._normalised(text)
            return text

        _mapped(value, look)
        return found

    def hide(self, value: Value) -> Value:
        """The value with every control name in its strings hidden."""
        return _mapped(value, lambda text: self._each_name(text, self._hidden))

    def encode(self, rendered: str) -> tuple[int, ...]:
        """The tokens of a rendering of what was hidden."""
        fenced = self._each_name(rendered, self._fence)
        for name, token in self._names.items():
            fenced = fenced.replace(self._hidden(token), name)
        found = read_long(self._literal, fenced)
        forged = [token for token in found if token in self._names.values()]
        if forged:
            raise BadRequest(
                f"A message holds {self._tokenizer.id_to_token(forged[0])!r}, which this vocabulary cannot write as "
                "plain text. Take it out."
            )
        return tuple(self._controls.get(token, token) for token in found)

    def _each_name(self, text: str, write: Callable[[int], str]) -> str:
        if not self._names:
            return text
        return re.sub(self._longest_first, lambda match: write(self._names[match[0]]), text)

    def _normalised(self, text: str) -> bool:
        normalizer = self._tokenizer.normalizer
        if normalizer is None:
            return False
        shown = normalizer.normalize_str(text.encode("utf-8", "replace").decode())
        return any(normalizer.normalize_str(name) in shown or name in shown for name in self._names)

    def _hidden(self, token: int) -> str:
        return f"\ue000{self._secret}-{token}\ue001"

    def _fence(self, token: int) -> str:
        return f"\ue000{self._secret}+{token}\ue001"

    @property
    def _literal(self) -> Tokenizer:
        """The tokenizer with the names of control tokens as plain text and fences in their place; made when needed."""
        if self._reader is None:
            reader = Tokenizer.from_str(self._tokenizer.to_str())
            reader.encode_special_tokens = True
            known = reader.get_added_tokens_decoder()
            for token in self._names.values():
                like = known.get(token, AddedToken(""))
                fence = self._fence(token)
                reader.add_tokens([AddedToken(fence, lstrip=like.lstrip, rstrip=like.rstrip, normalized=False)])
                (made,) = reader.encode(fence, add_special_tokens=False).ids
                self._controls[made] = token
            self._reader = reader
        return self._reader


def spells_more(value: object, most: int) -> bool:
    """Whether a value of JSON's kinds has more characters than that in its strings; every part counts as one more."""
    left = [value]
    while left and most >= 0:
        part = left.pop()
        if isinstance(part, str):
            most -= len(part)
        elif isinstance(part, Mapping):
            most -= len(part)
            left += [*part.keys(), *part.values()]
        elif isinstance(part, (list, tuple)):
            most -= len(part)
            left += part
    return most < 0


def _mapped(value: Value, change: Callable[[str], str]) -> Value:
    """A value of JSON's kinds with every string in it changed, names too."""
    made: object = value
    if isinstance(value, str):
        made = change(value)
    elif isinstance(value, Mapping):
        made = {_mapped(key, change): _mapped(inner, change) for key, inner in value.items()}
    elif isinstance(value, (list, tuple)):
        made = [_mapped(inner, change) for inner in value]
    return made  # type: ignore[return-value]
