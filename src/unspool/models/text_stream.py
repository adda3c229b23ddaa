"""Text that arrives token by token: bytes turned into characters as soon as they are certain, never sooner."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence


class TextStream:
    """An incremental decoder of one text: `push` gives the characters a token completes, `end` what is left.

    A token may end in the middle of a character; its bytes wait for the next token. Bytes that can no longer become a
    character turn into U+FFFD, so that the joined output is the UTF-8 decoding of the joined pieces. Bytes that may
    turn out to begin one of `stops` wait too, because a stop string takes itself back.
    """

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        self._piece = piece
        self._stops = [stop.encode() for stop in stops]
        self._held = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Take one token and return the text that is now certain (perhaps none)."""
        text = self._held + self._piece(token)
        sure = min((_first_sign(text, stop) for stop in self._stops), default=len(text))
        self._held = text[sure:]
        return self._decoder.decode(text[:sure])

    def whole(self, tokens: Iterable[int], trim: int = 0) -> str:
        """The text of all these tokens without its last `trim` bytes: what pushing them and ending would have given."""
        text = b"".join(map(self._piece, tokens))
        return text[: len(text) - trim].decode("utf-8", "replace")

    def end(self, trim: int = 0) -> str:
        """Finish the text without its last `trim` bytes and return what was still held back."""
        return self._decoder.decode(self._held[: len(self._held) - trim], final=True)


def _first_sign(text: bytes, stop: bytes) -> int:
    """Where `stop` stands in `text`, or might begin at its end."""
    found = text.find(stop)
    if found >= 0:
        return found
    longest = min(len(stop) - 1, len(text))
    return len(text) - next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
