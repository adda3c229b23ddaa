"""Laws that are one line of a matrix of logits, taken out only when somebody looks at it."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from ...core.law import Law


class LogitsRow(Law):
    """The law of row `number` of logits [n, vocab].

    On a device, taking a row out is a launch; most laws of a drafted tree are never looked at.
    """

    def __init__(self, logits: Tensor, number: int) -> None:
        self._logits, self._number = logits, number

    @property
    def scores(self) -> Tensor:
        return self._logits[self._number].float()


class LogitsAtTemperature(Law):
    """The law of row `number` of logits [n, vocab] at a temperature above 0."""

    def __init__(self, logits: Tensor, number: int, temperature: float) -> None:
        self.logits, self.number, self.temperature = logits, number, temperature

    @cached_property
    def scores(self) -> Tensor:
        return self.logits[self.number].float() / self.temperature
