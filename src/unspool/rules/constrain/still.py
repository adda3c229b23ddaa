"""States that lead nowhere else: a text that has ended, and one that can no longer meet its constraint."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .form import FormVocabulary


@dataclass(frozen=True)
class Still:
    """After the end: only `tokens` may follow, and change nothing. Without any, the text can no longer be met."""

    size: int
    tokens: frozenset[int] = frozenset()

    def step(self, token: int) -> Still:
        return self if token in self.tokens else Still(self.size)

    def mask(self) -> Tensor:
        return mask_of(self.size, self.tokens)

    def allows(self, token: int) -> bool:
        return token in self.tokens

    def forced(self) -> tuple[int, ...]:
        return tuple(self.tokens) if len(self.tokens) == 1 else ()

    def complete(self) -> bool:
        return bool(self.tokens)


def over(words: FormVocabulary) -> Still:
    """The state of a text that has ended."""
    return Still(words.size, words.eos)


def dead(words: FormVocabulary) -> Still:
    """The state of a text that breaks its constraint."""
    return Still(words.size)


def mask_of(size: int, tokens: frozenset[int] | tuple[int, ...]) -> Tensor:
    """The mask that allows these tokens and no other."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(tokens)] = True
    return mask
