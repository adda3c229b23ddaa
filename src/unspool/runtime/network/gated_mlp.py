"""A gated perceptron: x ↦ down(gated(gate(x), up(x))), where gated(g, u) is mostly bend(g)·u."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...models.layer_shape import Activation
from .linear import Linear

Gated = Callable[[Tensor, Tensor], Tensor]
"""What is made of a gate and what it lets through."""

_LIMIT, _STEEP = 7.0, 1.702


@dataclass(frozen=True)
class GatedMLP:
    """The perceptron of a layer, or of one expert, with gate and up in one matrix."""

    gate_up: Linear
    down: Linear
    gated: Gated

    def __call__(self, x: Tensor) -> Tensor:
        both = self.gate_up(x)
        width = both.shape[1] // 2
        return self.down(self.gated(both[:, :width], both[:, width:]))


@dataclass(frozen=True)
class SquaredMLP:
    """A perceptron without a gate: x ↦ down(relu(up(x))²), as Nemotron-H has it."""

    up: Linear
    down: Linear

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)).square_())


def gated_by(activation: Activation) -> Gated:
    """The function that an activation names."""
    return {"silu": _silu, "gelu_tanh": _gelu, "clamped_swish": _clamped_swish}[activation]


def _silu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate).mul_(up)


def _gelu(gate: Tensor, up: Tensor) -> Tensor:
    return F.gelu(gate, approximate="tanh").mul_(up)


def _clamped_swish(gate: Tensor, up: Tensor) -> Tensor:
    """g·sigmoid(1.702·g)·(u + 1), with g at most 7 and u from −7 to 7 (gpt-oss)."""
    gate, up = gate.clamp(max=_LIMIT), up.clamp(-_LIMIT, _LIMIT)
    return (gate * (gate * _STEEP).sigmoid()).mul_(up + 1)
