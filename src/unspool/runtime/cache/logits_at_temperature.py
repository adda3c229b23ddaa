"""A law that is one line of a matrix of logits over a temperature, made only when somebody looks at it."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from ...core.law import Law


class LogitsAtTemperature(Law):
    """The law of row `number` of logits [n, vocab] at a temperature above 0."""

    def __init__(self, logits: Tensor, number: int, temperature: float) -> None:
        self.logits, self.number, self.temperature = logits, number, temperature

    @cached_property
    def scores(self) -> Tensor:
        return self.logits[self.number].float() / self.temperature
