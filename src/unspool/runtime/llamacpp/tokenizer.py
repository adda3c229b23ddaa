"""The vocabulary of a GGUF file as llama.cpp reads it, for files whose way to cut text is not known here."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from ...core.errors import BadModel, BadRequest
from ...models.chat_template import Fences
from ...models.gguf_vocabulary import CONTROL, UNKNOWN, read_vocabulary
from ...models.vocabulary import Vocabulary
from .library import library
from .llama_context import LlamaContext

_LONGEST = 1 << 20  # bytes of one token
_NAMED = {"bos_token": "bos", "eos_token": "eos", "pad_token": "pad"}


def vocabulary_of(metadata: Mapping[str, object], context: LlamaContext, source: str) -> Vocabulary:
    """The vocabulary by our own reader where it knows how text is cut, else by llama.cpp's."""
    try:
        return read_vocabulary(metadata, context.vocab, source)
    except BadModel:
        return LlamaCppVocabulary(metadata, context)


class LlamaCppVocabulary(Vocabulary):
    """Tokens whose texts llama.cpp cuts and spells; what our reader would give is asked of its C functions."""

    def __init__(self, metadata: Mapping[str, object], context: LlamaContext) -> None:
        self._lib, self._context = library(), context  # which keeps the model alive
        names, types = (metadata.get(f"tokenizer.ggml.{key}") for key in ("tokens", "token_type"))
        if not isinstance(names, list) or not names:
            raise BadModel(f"{context.path}: has no list of tokens, so nobody can read or write text with it.")
        kinds = types if isinstance(types, list) else []
        template = metadata.get("tokenizer.chat_template")
        size, words = context.vocab, context.words
        bos = self._lib.llama_vocab_bos(words)
        known = {key: getattr(self._lib, f"llama_vocab_{name}")(words) for key, name in _NAMED.items()}
        super().__init__(
            Tokenizer(WordLevel({str(name): token for token, name in enumerate(names)}, unk_token="")),
            [self._spelt(token) for token in range(size)],
            special=[token for token, kind in enumerate(kinds[:size]) if kind in (CONTROL, UNKNOWN)],
            eos=[token for token in range(size) if self._lib.llama_vocab_is_eog(words, token)],
            bos=bos if 0 <= bos < size else None,
            add_bos=bool(self._lib.llama_vocab_get_add_bos(words)),
            chat_template=template if isinstance(template, str) else None,
            names={key: str(names[token]) for key, token in known.items() if 0 <= token < len(names)},
        )

    def encode(self, text: str, special: bool = True) -> tuple[int, ...]:
        if not isinstance(text, str):
            return super().encode(text, special)  # which says what is wrong
        try:
            raw = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadRequest(
                f"The text holds the lone surrogate {text[error.start]!r} at character {error.start}, which has no "
                "tokens. Read the input as UTF-8, or replace such characters."
            ) from error
        return self._begun(tuple(self._cut(raw, special)))

    def _cut(self, raw: bytes, special: bool) -> Sequence[int]:
        count = max(16, len(raw) + 8)
        for _ in range(2):
            found = (ctypes.c_int32 * count)()
            size = self._lib.llama_tokenize(self._context.words, raw, len(raw), found, count, False, special)
            if size >= 0:
                return found[:size]
            count = -size
        raise BadRequest(f"llama.cpp cannot cut a text of {len(raw):,} bytes into tokens. Give a shorter one.")

    def _spelt(self, token: int) -> bytes:
        """The bytes that a token adds to a text; none for control tokens."""
        size = 64
        while size <= _LONGEST:
            buffer = ctypes.create_string_buffer(size)
            written = self._lib.llama_token_to_piece(self._context.words, token, buffer, size, 0, False)
            if written >= 0:
                return buffer.raw[:written]
            size = -written if -written > size else 2 * size
        raise BadModel(f"{self._context.path}: token {token} is longer than {_LONGEST:,} bytes. The file is damaged.")

    @cached_property
    def _fences(self) -> Fences:
        return _SegmentFences(self._tokenizer, self.special, self._cut)


class _SegmentFences(Fences):
    """Control tokens stand where the template names them; what lies between is cut by itself, as plain text."""

    def __init__(self, names: Tokenizer, special: frozenset[int], cut: Callable[[bytes, bool], Sequence[int]]) -> None:
        super().__init__(names, special)
        self._cut = cut

    def encode(self, rendered: str) -> tuple[int, ...]:
        found: list[int] = []
        for part in re.split(f"({self._longest_first})", rendered) if self._names else [rendered]:
            if part in self._names:
                found.append(self._names[part])
                continue
            for name, token in self._names.items():
                part = part.replace(self._hidden(token), name)
            found += self._cut(part.encode("utf-8"), False) if part else ()
        return tuple(found)
