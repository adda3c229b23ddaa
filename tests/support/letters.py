"""A vocabulary small enough to enumerate: letters, some pairs of them, control tokens and tokens that end a text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Letters:
    """Token i spells pieces[i]; then come control tokens and tokens that end a text."""

    pieces: tuple[str, ...]
    controls: int = 1
    ends: int = 2

    @property
    def size(self) -> int:
        return len(self.pieces) + self.controls + self.ends

    @property
    def eos(self) -> frozenset[int]:
        return frozenset(range(self.size - self.ends, self.size))

    def piece(self, token: int) -> bytes:
        return self.pieces[token].encode() if token < len(self.pieces) else b""

    def encode(self, text: str, special: bool = True) -> tuple[int, ...]:
        tokens: list[int] = []
        while text:
            token = max((t for t, p in enumerate(self.pieces) if text.startswith(p)), key=lambda t: len(self.pieces[t]))
            tokens.append(token)
            text = text[len(self.pieces[token]) :]
        return tuple(tokens)

    def decode(self, tokens: tuple[int, ...]) -> str:
        return b"".join(map(self.piece, tokens)).decode()
