"""Masks: warps that only forbid, and tell which tokens may follow as bits that a device can apply."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..errors import EmptyLaw
from ..law import nothing_left
from .warp import Warp


class Mask(Warp):
    """A warp whose law is the given one, given that the next token is among some.

    A device computes the scores while the host finds out which these are. And the best token is the best of those that
    may follow wherever it may follow itself: so at temperature 0 drafts are verified without asking, and how far that
    stands is told afterwards.
    """

    @abstractmethod
    def bits(self, state: Any) -> Tensor:
        """Which tokens may follow, uint8 on the host: bit i of byte j tells it of token 8·j + i."""

    @classmethod
    def step_all(cls, asked: Sequence[tuple[Mask, Any]], tokens: Sequence[int]) -> list[Any]:
        """The states of several texts with masks of this kind, each after a token that it allowed."""
        return [mask.step(state, token) for (mask, state), token in zip(asked, tokens, strict=True)]

    @classmethod
    def fill(cls, asked: Sequence[tuple[Mask, Any]], rows: Sequence[int], out: Tensor) -> None:
        """Put the bits of several such texts into rows of a host's uint8 [rows, bytes], sooner than one by one."""
        for (mask, state), row in zip(asked, rows, strict=True):
            bits = mask.bits(state)
            out[row, : len(bits)] = bits

    @classmethod
    def accept_all(cls, asked: Sequence[tuple[Mask, Any]], ranked: Sequence[Sequence[int]]) -> list[tuple[int, Any]]:
        """Of several such texts, the first of the tokens ranked for each that may follow, and the state after it.

        −1 where none may, with the state as it is. Ranks below 0 are no tokens.
        """
        found: list[tuple[int, Any]] = []
        for (mask, state), tokens in zip(asked, ranked, strict=True):
            bits = mask.bits(state)
            token = next((x for x in tokens if x >= 0 and bits[x >> 3] >> (x & 7) & 1), -1)
            found.append((token, mask.step(state, token) if token >= 0 else state))
        return found

    def only(self, state: Any) -> int:
        """The one token that may follow, where that is known without much ado; else −1."""
        return -1

    def over(self, state: Any) -> bool:
        """Whether the text has ended, so that what follows does not matter; False where that is not known."""
        return False

    def follows(self, state: Any, tokens: Sequence[int]) -> int:
        """How many of these tokens may follow, one after the other; fewer, where that would take long to tell."""
        for count, token in enumerate(tokens):
            if not self.bits(state)[token >> 3] >> (token & 7) & 1:
                return count
            state = self.step(state, token)
        return len(tokens)

    def refusal(self) -> EmptyLaw:
        """What to say where none may."""
        return nothing_left()
