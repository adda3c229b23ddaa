"""How a token's stored name spells bytes: byte-level letters, or SentencePiece's ▁ and <0xNN>."""

from __future__ import annotations

import re

_BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_letters() -> dict[str, int]:
    """Return the letter of each byte: itself where it prints, else the next free one from U+0100 on (GPT-2's table)."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printing}
    hidden = (byte for byte in range(256) if chr(byte) not in letters)
    letters.update({chr(0x100 + index): byte for index, byte in enumerate(list(hidden))})
    return letters


BYTE_LETTERS = _byte_letters()


def byte_level(name: str) -> bytes:
    """Spell a byte-level name: one byte a letter; a name with other letters is plain text."""
    try:
        return bytes(BYTE_LETTERS[letter] for letter in name)
    except KeyError:
        return name.encode("utf-8")


def sentence_piece(name: str) -> bytes:
    """Spell a SentencePiece name: <0xNN> is one byte, ▁ is a space."""
    match = _BYTE_NAME.fullmatch(name)
    if match:
        return bytes([int(match[1], 16)])
    return name.replace("▁", " ").encode("utf-8")
