"""Forms: conditions on texts as users say them, before they know a model's tokens."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ...core.option import expect
from .. import constrain
from .constraint import Constraint


class FormVocabulary(Protocol):
    """What a form needs to know of a vocabulary."""

    @property
    def size(self) -> int:
        """How many tokens there are."""

    @property
    def eos(self) -> frozenset[int]:
        """The tokens that end a text."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token, b"" for control tokens."""

    def encode(self, text: str, special: bool = True) -> tuple[int, ...]:
        """The tokens of a text."""

    def __hash__(self) -> int: ...


@runtime_checkable
class Form(Protocol):
    """A condition on the text of an answer; it becomes a constraint when it is fitted to a vocabulary.

    `a & b` are the texts that meet both, `a | b` those that meet one, `a.then(b)` those of a followed by those of b,
    `a.within(n)` those that end in time.
    """

    def fit(self, words: FormVocabulary) -> Constraint:
        """The constraint over these tokens; BadRequest if nothing can meet it or it cannot be enforced."""

    def __and__(self, other: Form) -> Form:
        return constrain.AllOf(self, other)

    def __or__(self, other: Form) -> Form:
        return constrain.AnyOf(self, other)

    def then(self, other: Form) -> Form:
        """A text of this form, followed by one of the other."""
        return constrain.Followed(self, other)

    def within(self, tokens: int) -> Form:
        """A text of this form that ends within so many tokens, the one that ends it included."""
        return constrain.Within(self, tokens)


def spelt(text: str, words: FormVocabulary) -> tuple[int, ...]:
    """The tokens of a text that is no beginning: without the token that some models put first."""
    lead = len(words.encode("", special=False))
    return tuple(words.encode(text, special=False)[lead:])


def refuse_half_characters(name: str, text: str) -> None:
    """Refuse a text with lone surrogates, which JSON can bring: there are no bytes for them."""
    fits = not any("\ud800" <= letter <= "\udfff" for letter in text)
    expect(fits, name, text, "text without lone surrogates, which no token can spell")
