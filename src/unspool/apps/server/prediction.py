"""Predictions: what a client expects an answer to be, as OpenAI's predicted outputs, used as a draft."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from ...core.asks import Decoding
from ...core.chance import Chance
from ...core.claim import SEED, Method
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...loops.speculate import Speculate
from ...recipes.names import canonical
from ...recipes.registry import entries
from ...rules.draft.copy import Copy
from .fields import Body, wrong
from .messages import PARTS, Parts, text_of

COPY = "copy"  # the method that drafts what was given
MOST = 1 << 16  # characters: the index of a longer one would keep others waiting


class Prediction(Body):
    """What a client expects the answer to be."""

    type: Literal["content"]
    content: Annotated[str, Field(max_length=MOST)] | Parts = Field(description=f"{PARTS}; at most {MOST} characters")

    def text(self) -> str:
        """The predicted text."""
        text = text_of(self.content)
        if len(text) > MOST:  # of all parts together
            wrong("prediction.content", text, f"at most {MOST} characters", "string_above_max_length")
        return text


@dataclass(frozen=True)
class Predicted:
    """The method `copy`, made to copy a predicted text instead of the prompt.

    Claim: SEED, as with any draft under sample matching: the prediction decides how fast a text comes, never what it
    is.
    """

    method: Method
    text: str

    def fit(self, vocabulary: Any) -> Method:
        """With the tokens that this vocabulary spells the prediction in."""
        made = self.method
        assert isinstance(made, Speculate)  # as `copy` is built
        assert isinstance(made.draft, Copy)
        lead = len(vocabulary.encode("", special=False))  # a beginning-of-text token is no part of an answer
        return replace(made, draft=replace(made.draft, input=vocabulary.encode(self.text, special=False)[lead:]))

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        raise TypeError("a prediction has to be fitted to a vocabulary first")


def method_for(predicted: str | None, named: str | None, usual: str) -> str:
    """The method for a request with or without a prediction, by the one it names and the one for those that name none.

    A prediction asks for `copy` where that gives the text that would come without it; else it is left unused.
    """
    if predicted is None or named is not None:
        return usual if named is None else named
    known = entries().get(canonical(usual).partition(":")[0])
    return COPY if known is not None and known.claim is SEED else usual


def copies(method: str) -> bool:
    """Whether a method copies what it is given."""
    return canonical(method).partition(":")[0] == COPY
