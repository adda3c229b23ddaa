"""The tokens of texts on a device, for kernels that look back: penalties, n-grams, drafts from what was said."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from itertools import count

import torch

from ..cache.sequence import CachedSequence


@dataclass
class TextLine:
    """Where a text stands, a number that no other text ever has, and how many of its tokens are there."""

    number: int
    serial: int
    written: int = 0


class TextLines:
    """A table [lines + 1, length + 1] of tokens, a line per text; the last line is for padding.

    If there are too many texts, the one that was not written on for longest makes room.
    """

    def __init__(self, lines: int, length: int, device: torch.device) -> None:
        self.texts = torch.zeros(lines + 1, length + 1, dtype=torch.int32, device=device)
        self.padding = lines
        self._serials, self._free = count(1), list(range(lines))
        self._known: dict[int, TextLine] = {}  # by id of the text, the one used last at the end

    def line(self, leaf: CachedSequence) -> TextLine:
        """The line of a text, with all its tokens."""
        line = self._known.pop(id(leaf), None) or self._taken(leaf)
        self._known[id(leaf)] = line
        if line.written < len(leaf.tokens):
            new = torch.tensor(leaf.tokens[line.written :], dtype=torch.int32)
            self.texts[line.number, line.written : len(leaf.tokens)] = new.to(self.texts.device)
            line.written = len(leaf.tokens)
        return line

    def wrote(self, leaf: CachedSequence, but: int = 0) -> None:
        """Take note that the device has put down what it wrote itself, but for the last so many tokens."""
        line = self._known.get(id(leaf))
        if line is not None:
            line.written = len(leaf.tokens) - but

    def _taken(self, leaf: CachedSequence) -> TextLine:
        if not self._free:
            self._gone(next(iter(self._known)))
        weakref.finalize(leaf, self._gone, id(leaf))
        return TextLine(self._free.pop(), next(self._serials))

    def _gone(self, key: int) -> None:
        line = self._known.pop(key, None)
        if line is not None:
            self._free.append(line.number)
