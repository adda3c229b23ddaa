"""End-of-text on a canvas: held back until nothing else is left to fill, or never seen at all.

Where a canvas is filled in any order an early end of text cuts off all that was to stand behind it, and models that
were trained with padded answers are surest of nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from ...core.canvas import Canvas, Field
from ...core.law import NEVER
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Rule, Viewing, look, suited
from .certainty import Certainty


class EndingVocabulary(Protocol):
    """A vocabulary that knows which of its tokens end a text."""

    @property
    def eos(self) -> frozenset[int]:
        """The tokens that end a text."""


@dataclass(frozen=True)
class Late(Rule):
    """The certainty of a hole, or −∞ if one of `ends` was drawn for it: it is filled when no other is left."""

    certainty: Certainty
    ends: frozenset[int] = frozenset()

    def fit(self, vocabulary: EndingVocabulary) -> Late:
        return replace(self, certainty=suited(self.certainty, vocabulary), ends=vocabulary.eos)

    def __call__(self, state: DenoiseState, place: int) -> float:
        return NEVER if state.preview(place).token in self.ends else self.certainty(state, place)


@dataclass(frozen=True)
class Endless(Rule):
    """One look, with `ends` forbidden before anybody sees how sure the model is."""

    ends: frozenset[int] = frozenset()

    def fit(self, vocabulary: EndingVocabulary) -> Endless:
        return replace(self, ends=vocabulary.eos)

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        field = yield from look(canvas, places)
        known = torch.tensor(sorted(self.ends), dtype=torch.int64, device=field.scores.device)
        return Field.of(list(field), field.scores.index_fill(1, known, NEVER), field.rows, field.final)
