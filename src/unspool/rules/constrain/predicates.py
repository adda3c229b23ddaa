"""Any condition that Python can tell of a text so far."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...core.errors import BadRequest
from ...core.option import expect
from .constraint import Constraint, State, dead, over
from .form import Form, FormVocabulary


@dataclass(frozen=True)
class Predicate(Form):
    """Every beginning of the text satisfies `holds`; the text may end where `ends` says, or anywhere.

    `holds` sees whole characters only, and should be False as soon as no continuation can help: if it says True where
    none can, the text runs on until its length ends it, or until no token is left, which is an error.

    Cost: one call per token of the vocabulary for every token that is written. A grammar is a thousand times faster.
    """

    holds: Callable[[str], bool]
    ends: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        expect(callable(self.holds), "predicate", self.holds, "a function from the text so far to True or False")
        called = self.ends is None or callable(self.ends)
        expect(called, "ends", self.ends, "None, or a function from a text to True or False")

    def fit(self, words: FormVocabulary) -> Constraint:
        return BoundPredicate(self, words)

    def ask(self, question: Callable[[str], bool], text: str) -> bool:
        """What a function says of a text, or an error that shows which text it failed on."""
        try:
            return bool(question(text))
        except Exception as error:
            named = getattr(question, "__name__", "it")
            shown = text if len(text) <= 80 else "…" + text[-80:]
            raise BadRequest(
                f"the predicate {named} raised {type(error).__name__}: {error}, on the text {shown!r}; "
                "expected True or False for every beginning of a text"
            ) from error


@dataclass(frozen=True)
class BoundPredicate:
    """A predicate over a vocabulary."""

    predicate: Predicate
    words: FormVocabulary

    def start(self) -> State:
        return Said(self, b"")


@dataclass(frozen=True)
class Said:
    """The bytes of the text so far."""

    of: BoundPredicate
    data: bytes

    def step(self, token: int) -> State:
        words = self.of.words
        if not self.allows(token):
            return dead(words)
        return over(words) if token in words.eos else Said(self.of, self.data + words.piece(token))

    def mask(self) -> Tensor:
        return self._mask

    def allows(self, token: int) -> bool:
        if token in self.of.words.eos:
            return self.complete()
        piece = self.of.words.piece(token)
        text = _characters(self.data + piece) if piece else None  # a control token adds nothing to a text
        return text is not None and self.of.predicate.ask(self.of.predicate.holds, text)

    def forced(self) -> tuple[int, ...]:
        return ()

    def complete(self) -> bool:
        """True if the text may end here: whole characters, and `ends` says so."""
        predicate = self.of.predicate
        try:
            text = self.data.decode()
        except UnicodeDecodeError:
            return False
        return predicate.ask(predicate.ends, text) if predicate.ends else True

    @cached_property
    def _mask(self) -> Tensor:
        return torch.tensor([self.allows(token) for token in range(self.of.words.size)], dtype=torch.bool)


def predicate(holds: Callable[[str], bool], ends: Callable[[str], bool] | None = None) -> Predicate:
    """Texts of which every beginning satisfies a function."""
    return Predicate(holds, ends)


def _characters(data: bytes) -> str | None:
    """The whole characters of a text that may end within one; None if it is no text."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return None
