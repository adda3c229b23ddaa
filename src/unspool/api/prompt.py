"""The prompt of a request, with a word for all that people try as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ..core.errors import BadRequest
from ..models.chat_template import Dialogue

Prompt: TypeAlias = str | Sequence[int] | Sequence[Mapping[str, str]] | Dialogue
KINDS = "a text, a list of messages {role, content}, or a list of tokens"


def understood(given: Any) -> str | Dialogue | tuple[int, ...]:
    """A prompt as a text, a dialogue or tokens; refuses what is none of them, and says which call takes it."""
    if isinstance(given, (str, Dialogue)):
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        raise _no_prompt("the prompt is bytes; decode them first, as in data.decode('utf-8')")
    if isinstance(given, Mapping):
        raise _no_prompt(f"the prompt is one mapping; give {KINDS}, as in [{{'role': 'user', 'content': 'Hello'}}]")
    if hasattr(given, "tolist"):
        raise _no_prompt(f"the prompt is a {type(given).__name__}; give its tokens as a list: .tolist()")
    if not isinstance(given, Sequence):
        raise _no_prompt(f"the prompt is {given!r:.80} ({type(given).__name__}); expected {KINDS}")
    return _listed(given)


def several(given: Any) -> list[Any]:
    """The prompts of a batch; refuses what is one prompt, or none."""
    one = isinstance(given, (str, bytes, bytearray, Mapping, Dialogue))
    if one or not isinstance(given, Iterable):
        found = f"a {type(given).__name__}" if one else f"{given!r:.80} ({type(given).__name__})"
        raise _no_prompt(f"the prompts of a batch are {found}; give a list of them, or one prompt to `generate`")
    return list(given)


def _listed(given: Sequence[Any]) -> Dialogue | tuple[int, ...]:
    if not given:
        raise _no_prompt("the prompt is empty: give some text to go on from")
    if set(map(type, given)) == {int} or all(isinstance(part, int) and not isinstance(part, bool) for part in given):
        return tuple(given)
    if all(isinstance(part, Mapping) for part in given):
        return Dialogue(given)
    if all(isinstance(part, (str, Sequence, Dialogue)) and not isinstance(part, bytes) for part in given):
        raise _no_prompt("the prompt is a list of prompts; `batch` answers each of them, `generate` and `stream` one")
    odd = [part for part in given if not isinstance(part, (str, int, Mapping)) or isinstance(part, bool)]
    about = f"{odd[0]!r:.80} ({type(odd[0]).__name__}) in it" if odd else "parts of different kinds"
    raise _no_prompt(f"the prompt is a list with {about}; expected {KINDS}")


def _no_prompt(why: str) -> BadRequest:
    return BadRequest(why, param="prompt")
