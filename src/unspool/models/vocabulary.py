"""The tokens of a model: text to tokens, tokens to exact bytes and, as they come, to text; which tokens end a text."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer, models

from ..core.errors import BadRequest, cut
from .chat_template import Dialogue, Fences, knows_tools, read_long, refuse_unreadable, render_chat, spelt_out

LONG = 10_000  # characters that take milliseconds to read
ENDINGS = frozenset(
    (
        "<|endoftext|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<|end|>",
        "<|eot|>",
        "<eos>",
        "</s>",
    )
)
"""Control tokens that end a reply, by the names that models give them."""
_BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """Every token of a model: `encode`, `decode`, the exact bytes of each token, its endings and its chat template.

    `size` is the number of logits; ids the tokenizer does not know (padding of the output layer) have no bytes.
    `pieces[i]` is the byte string that token i adds to a text, b"" for control tokens; `decode` joins them, so decoding
    is additive: decode(a + b) has the bytes of decode(a) followed by those of decode(b).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        pieces: Sequence[bytes],
        *,
        special: Iterable[int],
        eos: Iterable[int],
        bos: int | None = None,
        add_bos: bool = False,
        chat_template: str | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._pieces = pieces
        self.size = len(self._pieces)
        self.special = frozenset(special)
        self.eos = frozenset(eos)
        self.bos = bos
        self.add_bos = add_bos and bos is not None
        self.chat_template = chat_template
        self.block: int | None = None  # how many places the model fills together, if it fills any and says so
        self._names = dict(names or {})

    def in_blocks(self, block: int | None) -> Vocabulary:
        """The same vocabulary, of a model that fills so many places together."""
        made = copy(self)
        made.block = block
        return made

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts texts into tokens; not to be changed."""
        return self._tokenizer

    @property
    def named(self) -> Mapping[str, str]:
        """The names of control tokens by their roles, such as eos_token."""
        return self._names

    def encode(self, text: str, special: bool = True) -> tuple[int, ...]:
        """Return the tokens of a text.

        `special` says whether the names of control tokens inside the text stand for those tokens; give False for text
        from strangers. The beginning-of-text token is put first where the model wants it and the text has none.
        """
        if not isinstance(text, str):
            raise BadRequest(
                f"The text to encode is a {type(text).__name__}; expected str. Decode bytes as UTF-8 first."
            )
        _refuse_surrogates(text)
        tokenizer = self._tokenizer if special else self._literal
        if len(text) > LONG:
            return self._begun(tuple(read_long(tokenizer, text)))
        return self._begun(tuple(tokenizer.encode(text, add_special_tokens=False).ids))

    def prepare(self) -> None:
        """Have ready what strangers' texts are read with, where the first of them should not wait for it: a second."""
        self.encode("", special=False)
        self._fences.encode("")

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of some tokens; control tokens are silent, broken characters become U+FFFD."""
        if isinstance(tokens, (str, bytes)):
            raise BadRequest(f"The tokens to decode are {cut(repr(tokens))}; expected their numbers, as in [1, 2].")
        return b"".join(map(self.piece, tokens)).decode("utf-8", "replace")

    def piece(self, token: int) -> bytes:
        """Return the exact bytes that a token adds to a text, b"" for control tokens."""
        if not 0 <= token < self.size:
            raise BadRequest(f"Token {token} does not exist: this vocabulary has the tokens 0 to {self.size - 1}.")
        return self._pieces[token]

    def stream(self, stops: Sequence[str] = (), skip: int = 0) -> TextStream:
        """Start a text that arrives token by token and may end before one of `stops`; its first bytes are left out."""
        return TextStream(self.piece, stops, skip)

    def token(self, text: str) -> int | None:
        """Return the one token that is this text or bears this name, or None."""
        named = self._tokenizer.token_to_id(text)
        if named is not None and (named in self.special or self._pieces[named] == text.encode("utf-8", "replace")):
            return int(named)
        return self._by_piece.get(text.encode("utf-8", "replace"))

    def token_of(self, piece: bytes) -> int | None:
        """Return the first token that adds exactly these bytes to a text, or None."""
        return self._by_piece.get(piece)

    def name(self, token: int) -> str:
        """Return how the vocabulary itself spells a token: the name of a control token, else its text."""
        if token in self.special:
            return str(self._tokenizer.id_to_token(token))
        return self.piece(token).decode("utf-8", "backslashreplace")

    def first_difference(self, other: Vocabulary) -> int | None:
        """Return the first token that is not the same in both, or None; one may be padded with more tokens."""
        if self is other:
            return None
        shared = range(min(self.size, other.size))
        return next((token for token in shared if self.name(token) != other.name(token)), None)

    def chat(self, messages: Sequence[Mapping[str, Any]], reply: bool = True) -> str:
        """Write messages of {role, content} as the text the model was tuned on; `reply` opens the model's answer."""
        return self._rendered(Dialogue(messages), reply)

    def at_least(self, text: str) -> int:
        """Return how many tokens a text has at the least, without reading it; 0 if nobody can tell."""
        return self._bound.at_least(text)

    def encode_chat(
        self, dialogue: Dialogue, reply: bool = True, look: Callable[[str], None] = lambda text: None
    ) -> tuple[int, ...]:
        """Return the tokens of `chat`, with tools if there are any; no message can put a control token there.

        A control token stands only where the template names it. The same name inside a message is plain text. `look`
        may refuse a text before it is read, but for one that spells such names.
        """
        parts = (list(dialogue.messages), list(dialogue.tools))
        if not self._fences.suspects(parts):
            text = self._rendered(dialogue, reply)
            look(text)
            return self.encode(text)
        rendered = self._rendered(Dialogue(*self._fences.hide(parts)), reply)
        _refuse_surrogates(rendered)
        return self._begun(self._fences.encode(rendered))

    def _rendered(self, dialogue: Dialogue, reply: bool) -> str:
        template = self.chat_template
        if template is None:
            raise BadRequest("This model has no chat template: it continues text. Give it a plain prompt instead.")
        if knows_tools(template) or not dialogue.has_tools:
            return render_chat(template, dialogue.messages, reply=reply, names=self._names, tools=dialogue.tools)
        refuse_unreadable(dialogue.messages)
        return render_chat(template, spelt_out(dialogue), reply=reply, names=self._names)

    def _begun(self, found: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens with the beginning-of-text token before them, where the model wants it and they have none."""
        if self.add_bos and self.bos is not None and found[:1] != (self.bos,):
            return (self.bos, *found)
        return found

    @cached_property
    def _bound(self) -> TokenBound:
        return TokenBound(self._tokenizer, self._pieces, self.special)

    @cached_property
    def _fences(self) -> Fences:
        return Fences(self._tokenizer, self.special)

    @cached_property
    def _literal(self) -> Tokenizer:
        """The same tokenizer, but names of control tokens are plain text; apart, because the switch is global state."""
        # Through JSON, as the object cannot be copied while a pre-tokenizer is attached.
        other = Tokenizer.from_str(self._tokenizer.to_str())
        other.encode_special_tokens = True
        return other

    @cached_property
    def _by_piece(self) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for token, piece in enumerate(self._pieces):
            if piece:
                found.setdefault(piece, token)
        return found

    def __repr__(self) -> str:
        return f"Vocabulary(size={self.size}, eos={json.dumps(sorted(self.eos))}, bos={self.bos})"


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"The text holds the lone surrogate {text[error.start]!r} at character {error.start}, which is no "
            "Unicode text and has no tokens. Read the input as UTF-8, or replace such characters."
        ) from error


class TextStream:
    """An incremental decoder of one text: `push` gives the characters a token completes, `end` what is left.

    A token may end in the middle of a character; its bytes wait for the next token. Bytes that can no longer become a
    character turn into U+FFFD, so that the joined output is the UTF-8 decoding of the joined pieces. Bytes that may
    turn out to begin one of `stops` wait too, because a stop string takes itself back. The first `skip` bytes are no
    part of the text.
    """

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str] = (), skip: int = 0) -> None:
        self._piece = piece
        self._skip = self._left = skip
        self._stops = [_StopSearch(stop.encode()) for stop in stops]
        self._held, self._read = b"", 0  # what waits, and how many bytes came before its end
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Take one token and return the text that is now certain (perhaps none)."""
        piece = self._piece(token)
        new, self._left = piece[self._left :], max(0, self._left - len(piece))
        text, self._read = self._held + new, self._read + len(new)
        begins = min((stop.read(new) for stop in self._stops), default=self._read)
        sure = len(text) - (self._read - begins)
        self._held = text[sure:]
        return self._decoder.decode(text[:sure])

    def whole(self, tokens: Iterable[int], trim: int = 0) -> str:
        """The text of all these tokens without its last `trim` bytes: what pushing them and ending would have given."""
        text = b"".join(map(self._piece, tokens))
        return text[self._skip : len(text) - trim].decode("utf-8", "replace")

    def end(self, trim: int = 0) -> str:
        """Finish the text without its last `trim` bytes and return what was still held back."""
        return self._decoder.decode(self._held[: len(self._held) - trim], final=True)


class _StopSearch:
    """Where a stop string stands in a text that comes in pieces, or might begin at its end.

    It is the search of Knuth, Morris and Pratt: every byte is looked at once, however long the string is.
    """

    def __init__(self, stop: bytes) -> None:
        self._stop, self._read = stop, 0
        self._matched = 0  # bytes of the stop string that the text ends with
        self._borders = [0, 0]  # by length: the longest shorter beginning of the stop string that such a one ends with

    def read(self, piece: bytes) -> int:
        """Go on with the text; how many of its bytes come before the stop string, or before what may become one."""
        for byte in piece if self._matched < len(self._stop) else b"":
            self._matched = self._after(self._matched, byte)
            self._read += 1
            if self._matched == len(self._stop):
                break
        return self._read - self._matched

    def _after(self, matched: int, byte: int) -> int:
        """How much of the stop string there is at the end of the text with one byte more."""
        while matched and self._stop[matched] != byte:
            matched = self._border(matched)
        return matched + (self._stop[matched] == byte)

    def _border(self, length: int) -> int:
        for known in range(len(self._borders), length + 1):
            self._borders.append(self._after(self._borders[known - 1], self._stop[known - 1]))
        return self._borders[length]


def _byte_letters() -> dict[str, int]:
    """Return the letter of each byte: itself where it prints, else the next free one from U+0100 on (GPT-2's table)."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printing}
    hidden = (byte for byte in range(256) if chr(byte) not in letters)
    letters.update({chr(0x100 + index): byte for index, byte in enumerate(list(hidden))})
    return letters


BYTE_LETTERS = _byte_letters()
_OTHER = 0xFFFF  # what no byte is
_SPELT = dict.fromkeys(range(256), _OTHER) | {ord(letter): byte for letter, byte in BYTE_LETTERS.items()}


def byte_level(name: str) -> bytes:
    """Spell a byte-level name: one byte a letter; a name with other letters is plain text."""
    try:
        return name.translate(_SPELT).encode("latin-1")
    except UnicodeEncodeError:
        return name.encode("utf-8")


def sentence_piece(name: str) -> bytes:
    """Spell a SentencePiece name: <0xNN> is one byte, ▁ is a space."""
    match = _BYTE_NAME.fullmatch(name)
    if match:
        return bytes([int(match[1], 16)])
    return name.replace("▁", " ").encode("utf-8")


class TokenBound:
    """How many tokens a text has at the least, told by its size alone: what cannot fit need not be read.

    It is a bound for vocabularies that spell a text byte by byte; for others nobody can tell, and it is 0.

    A token covers no more bytes than the longest one, and a byte that is a token by itself is never left out.
    """

    def __init__(self, tokenizer: Tokenizer, pieces: Sequence[bytes], special: Iterable[int]) -> None:
        names = (str(tokenizer.id_to_token(token)).encode("utf-8", "replace") for token in special)
        self._longest = max(map(len, (*pieces, *names)), default=1)
        alone = {piece for piece in pieces if len(piece) == 1}
        self._left_out = bytes(byte for byte in range(256) if bytes([byte]) not in alone)
        before = str(tokenizer.pre_tokenizer).lower()
        spelt = isinstance(tokenizer.model, models.BPE) and tokenizer.normalizer is None
        self._known = spelt and "bytelevel" in before and "removed" not in before

    def at_least(self, text: str) -> int:
        """So many tokens, or more."""
        if not self._known:
            return 0
        return -(-len(text.encode("utf-8", "replace").translate(None, self._left_out)) // self._longest)
