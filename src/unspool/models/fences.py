"""Control tokens in a chat: only where the template put them, whatever the messages spell."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from threading import Lock
from typing import TypeVar

from tokenizers import AddedToken, Tokenizer

from ..core.errors import BadRequest

Value = TypeVar("Value")


_ONE_AT_A_TIME = Lock()


def read_long(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a long text, while other threads go on; one text at a time, or a few would take all cores."""
    with _ONE_AT_A_TIME:
        ids: list[int] = tokenizer.encode_batch([text], add_special_tokens=False)[0].ids
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
