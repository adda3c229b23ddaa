"""Masks: warps that only forbid, and tell which tokens may follow as bits that a device can apply."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from ..errors import EmptyLaw
from ..law import nothing_left
from .warp import Warp


class Mask(Warp):
    """A warp whose law is the given one, given that the next token is among some.

    A device computes the scores while the host finds out which these are; so it writes one token at a time.
    """

    @abstractmethod
    def bits(self, state: Any) -> Tensor:
        """Which tokens may follow, uint8 on the host: bit i of byte j tells it of token 8·j + i."""

    def refusal(self) -> EmptyLaw:
        """What to say where none may."""
        return nothing_left()
