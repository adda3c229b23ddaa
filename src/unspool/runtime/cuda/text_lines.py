"""The tokens of texts on a device, for kernels that look back: penalties, n-grams, drafts from what was said."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sequence
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
        return self.lines([leaf])[0]

    def lines(self, leaves: Sequence[CachedSequence]) -> list[TextLine]:
        """The lines of some texts, with all their tokens; what is new of all of them travels in one copy."""
        found, late = [], []
        for leaf in leaves:
            line = self._known.pop(id(leaf), None) or self._taken(leaf)
            self._known[id(leaf)] = line
            found.append(line)
            if line.written < len(leaf.tokens):
                late.append((line.number, line.written, leaf.tokens[line.written :]))
                line.written = len(leaf.tokens)
        if late:
            self._write(late)
        return found

    def _write(self, late: Sequence[tuple[int, int, list[int]]]) -> None:
        """Write tokens from a place of a line on, behind what the device was asked to do, without waiting for that.

        All are sent as if they were as many as the most are, the last token again and again: nobody reads a line behind
        its end, and where a text fills its line to the end they all fall on that token.
        """
        width, flat = max(len(tokens) for *_, tokens in late), array("i")
        for number, first, tokens in late:
            flat.extend((number, first))
            flat.extend(tokens)
            flat.extend(array("i", tokens[-1:]) * (width - len(tokens)))
        sent = torch.frombuffer(flat, dtype=torch.int32)
        if self.texts.is_cuda:
            sent = sent.pin_memory().to(self.texts.device, non_blocking=True)
        sent = sent.view(len(late), width + 2)
        places = sent[:, 1:2] + torch.arange(width, device=sent.device)
        self.texts[sent[:, :1].long(), places.clamp_(max=self.texts.shape[1] - 1)] = sent[:, 2:]

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
