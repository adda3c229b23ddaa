"""What a text is expected to be, as a draft of it: `copy:input=FILE`, and what a client of the server predicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..core.claim import Method
from ..core.errors import BadRequest
from ..core.files import read_text
from ..loops.speculate import Speculate
from ..rules.draft import Copy

LARGEST = 1 << 20  # bytes of a file to copy


@dataclass(frozen=True)
class Predicted(Speculate):
    """The method `copy`, made to copy a given text from its beginning instead of the prompt.

    Claim: SEED, as with any draft under sample matching: the prediction decides how fast a text comes, never what it
    is.
    """

    text: str = ""
    most: int | None = None  # tokens of it that are used; None: all

    def fit(self, vocabulary: Any) -> Method:
        assert isinstance(self.draft, Copy)  # as `predicted` takes it
        lead = len(vocabulary.encode("", special=False))  # a beginning-of-text token is no part of an answer
        tokens = vocabulary.encode(self.text, special=False)[lead:][: self.most]
        return Speculate(replace(self.draft, input=tokens), self.verify, self.budget)


def predicted(method: Method, text: str, most: int | None = None) -> Method:
    """The method `copy` for a text that is expected to be this one; of so many tokens of it at most."""
    assert isinstance(method, Speculate)  # as `copy` is built
    return Predicted(method.draft, method.verify, method.budget, text, most)


def read(file: str) -> str:
    """The text of a file that is to be copied."""
    try:
        return read_text(file, LARGEST)
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"copy:input={file} cannot be read as text ({error}); expected a file in UTF-8") from error
