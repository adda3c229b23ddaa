"""A small model of its own over whole texts: it reads tokens alone, so one forward has the guesses of all depths."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from unspool.models.drafters.description import DrafterSpec

from .layers import Layers, Tensors


class Alone:
    """Some layers between the target's embeddings and its head (SpecDec, direct alignment)."""

    def __init__(self, spec: DrafterSpec, embedding: Tensor) -> None:
        self.spec, self.layers = spec, Layers(spec, embedding)

    def places(self, width: int) -> None:
        """It guesses at every place."""

    def __call__(self, of: Tensors, tokens: Tensor, states: Tensor, depth: int, places: None) -> Iterator[Tensor]:
        """What the head reads [rows, width, dim]: at t of step s what follows token t + 1 + s."""
        layers, of = self.layers, self.layers.narrow(of)
        x, text = layers.embedding[tokens], torch.arange(tokens.shape[1], device=tokens.device)
        for layer in range(self.spec.shape.layers):
            entering = layers.normed(of, f"layers.{layer}.input_layernorm", x)
            q, k, v = (layers.split(of, layer, name, entering, text) for name in "qkv")
            x = layers.finish(of, layer, x, functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        out = layers.normed(of, "norm", x)
        for step in range(depth):
            yield functional.pad(out[:, 1 + step :], (0, 0, 0, 1 + step))
