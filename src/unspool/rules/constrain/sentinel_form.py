"""Sentinels: a template as a text with numbered gaps, and what was written for each (AutoTemplate, 2211.08387)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from ...core.option import expect
from .constraint import Constraint
from .form import Form, FormVocabulary
from .trie import choices
from .until_form import until


@dataclass(frozen=True)
class Sentinels(Form):
    """Texts <x0> … <x1> … <x2> …, each sentinel once and in order, one more than there are gaps around the words.

    For a model that was trained to answer `source` in this form. Trained or not, the answer has every sentinel, so that
    `filled` has every word in the order given.
    """

    words: tuple[str, ...]
    mark: str = "<extra_id_{}>"

    def __post_init__(self) -> None:
        fits = isinstance(self.words, tuple) and all(isinstance(word, str) and word.strip() for word in self.words)
        expect(fits, "words", self.words, "a tuple of words that are not empty")
        expect(self.mark.count("{}") == 1, "mark", self.mark, "a text with one {} for the number, as in <x{}>")

    def source(self, document: str = "") -> str:
        """What the model is asked: the words with a gap before, between and behind them, and the document if any."""
        gaps = "".join(f" {word}{self.mark.format(i)}" for i, word in enumerate(self.words, 1))
        return f"TL;DR:{self.mark.format(0)}{gaps}" + (f" | {document}" if document else "")

    def fit(self, words: FormVocabulary) -> Constraint:
        marks = [self.mark.format(i) for i in range(len(self.words) + 2)]
        parts: list[Form] = [choices(marks[0]), *(until(mark) for mark in marks[1:])]
        return reduce(lambda one, other: one.then(other), parts).fit(words)

    def filled(self, answer: str) -> str:
        """The text that an answer means: its pieces with the words between them."""
        pieces, rest = [], answer.partition(self.mark.format(0))[2]
        for i in range(1, len(self.words) + 2):
            piece, _, rest = rest.partition(self.mark.format(i))
            pieces.append(piece)
        parts = [pieces[0], *(part for pair in zip(self.words, pieces[1:], strict=True) for part in pair)]
        return " ".join(part.strip() for part in parts if part.strip())


def sentinels(*words: str) -> Sentinels:
    """Answers that fill the gaps around these words."""
    return Sentinels(words)
