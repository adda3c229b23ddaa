"""A gated perceptron: x ↦ down(bend(gate(x)) · up(x))."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...models.shape import Activation
from .linear import Linear


@dataclass(frozen=True)
class GatedMLP:
    """The perceptron of a layer, or of one expert, with gate and up in one matrix."""

    gate_up: Linear
    down: Linear
    bend: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        both = self.gate_up(x)
        width = both.shape[1] // 2
        return self.down(self.bend(both[:, :width]).mul_(both[:, width:]))


def bend_of(activation: Activation) -> Callable[[Tensor], Tensor]:
    """The function that an activation names."""
    return F.silu if activation == "silu" else _gelu


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")
