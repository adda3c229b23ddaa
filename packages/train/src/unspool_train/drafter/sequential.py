"""Heads that follow each other, over whole texts: Hydra, Clover, Amphista, FLASH, Falcon, blockwise parallel decoding.

The formulas are the runtime's own (unspool.runtime.drafter.cells); what the first head reads, a state or what layers
make of all states up to it, is computed at every place at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from unspool.models.drafters.description import LSTMS, DrafterSpec
from unspool.runtime.drafter.cells import begun, followed, regressed

from .layers import Layers, Tensors


class Sequential:
    """The forward of heads that follow each other; `embedding` is the target's."""

    def __init__(self, spec: DrafterSpec, embedding: Tensor) -> None:
        self.spec, self.layers = spec, Layers(spec, embedding)

    def places(self, width: int) -> None:
        """It guesses at every place."""

    def __call__(self, of: Tensors, tokens: Tensor, states: Tensor, depth: int, places: None) -> Iterator[Tensor]:
        """What the head of a step reads [rows, width, dim]."""
        of, words = self.layers.narrow(of), self.layers.embedding
        word = words[functional.pad(tokens[:, 1:], (0, 1))]
        ahead, carried = begun(self.spec, of, self._trunk(of, word, states.to(words)), word)
        for step in range(depth):
            if step and carried is not None:
                word = words[functional.pad(tokens[:, 1 + step :], (0, 1 + step))]
                ahead, carried = followed(self.spec, of, carried, word, step)
            yield ahead[..., step if carried is None else 0, :]

    def _trunk(self, of: Tensors, words: Tensor, states: Tensor) -> Tensor:
        """What the first head reads at every place."""
        spec, layers, x = self.spec, self.layers, states
        if spec.reads == "met":
            x = regressed(spec, of, "meet", states, words)
        elif spec.reads == "token":
            x = functional.linear(torch.cat([words, states], -1), of["join.weight"])
        elif spec.reads == "lstm":
            x = states + remembered(of, torch.cat([words, states], -1))
        text = torch.arange(x.shape[1], device=x.device)
        for layer in range(spec.shape.layers):
            entering = layers.normed(of, f"layers.{layer}.input_layernorm", x)
            q, k, v = (layers.split(of, layer, name, entering, text) for name in "qkv")
            x = layers.finish(of, layer, x, functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x


def remembered(of: Tensors, x: Tensor) -> Tensor:
    """What a stack of LSTM layers makes of texts [rows, width, 2 · dim]."""
    dim = of["lstm.0.state.weight"].shape[1]
    with torch.device("meta"):
        stack = torch.nn.LSTM(x.shape[-1], dim, LSTMS, batch_first=True)
    weights: dict[str, Tensor] = {}
    for layer in range(LSTMS):
        bias = of[f"lstm.{layer}.bias"]
        weights |= {
            f"weight_ih_l{layer}": of[f"lstm.{layer}.input.weight"],
            f"weight_hh_l{layer}": of[f"lstm.{layer}.state.weight"],
            f"bias_ih_l{layer}": bias,
            f"bias_hh_l{layer}": torch.zeros_like(bias),
        }
    made: Tensor = functional_call(stack, weights, (x.contiguous(),))[0]
    return made
