"""DREAM (2505.19201), told of text alone: tokens pass a layer, a gated look at the target's states, and a layer.

x₁ = layer₀(E[tokens]); x₂ = x₁ + tanh(g₁)·attention(x₁ → states) + tanh(g₂)·perceptron; x₃ = layer₂(x₂). In the middle
queries are of the drafter's own stream, keys and values of the target's last states, each head normed; a token sees the
states of all tokens before it. What is drafted has the drafter's own output for a state. With both gates at 0 it is a
language model of two layers, which knows nothing of its target.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..network.attention import Projected, attend, turn
from ..network.layer import Layer
from ..network.linear import rms
from ..network.network import Row
from .drafter_network import DrafterLayers, DrafterNetwork, LayerCall
from .feature_drafter import FeatureDrafter

MIDDLE = 1  # the layer that looks at states


class CrossDrafter(FeatureDrafter):
    """A feature drafter whose states are looked at in the middle."""

    def _layers(self) -> DrafterLayers:
        return CrossLayers(self)

    def _entering(self, words: Tensor, states: Tensor, rows: Sequence[Row]) -> tuple[Tensor, Tensor | None, bool]:
        return words, states, True


class CrossLayers(DrafterLayers):
    """Three layers, the middle one over states, which `through` is given as `first`."""

    def __init__(self, network: DrafterNetwork) -> None:
        super().__init__(network, network.slots)
        self._tensors, self._eps = network.tensors, network.eps

    def _one(self, layer: Layer, x: Tensor, call: LayerCall) -> Tensor:
        if call.number != MIDDLE:
            return super()._one(layer, x, call._replace(first=None))
        assert call.first is not None, "states, which no token is without"
        assert layer.mlp is not None
        found = self._crossed(layer, self._normed(x, layer.before_attention), call.first, call.turns)
        self._slots.write(call.number, call.into, found.keys.transpose(0, 1), found.values.transpose(0, 1))
        seen = attend(found.queries, call.number, call.spans, self._slots, layer.attention.spec.scale)
        gates = self._tensors["cross.gates"].tanh()  # of the look, and of the perceptron
        x = x + gates[0] * layer.attention.out(seen)
        return x + gates[1] * layer.mlp(self._normed(x, layer.before_mlp))

    def _crossed(self, layer: Layer, x: Tensor, states: Tensor, turns: tuple[Tensor, Tensor]) -> Projected:
        """Queries of what is drafted, keys and values of states."""
        spec, count = layer.attention.spec, len(x)
        own, theirs = (layer.attention.qkv(each).reshape(count, -1, spec.head_dim) for each in (x, states))
        queries = rms(own[:, : spec.heads], self._tensors["cross.q_norm.weight"], self._eps)
        keys = rms(theirs[:, spec.heads : spec.heads + spec.kv_heads], self._tensors["cross.k_norm.weight"], self._eps)
        both = turn(torch.cat((queries, keys), 1), *turns)
        return Projected(both[:, : spec.heads], both[:, spec.heads :], theirs[:, spec.heads + spec.kv_heads :], None)
