"""Chimera over whole texts (arXiv 2402.15758): trigrams ask the target's states, and those drafted before them.

Step s at place t reads the states up to t as keys, and its own trigrams of steps 0 to s, of which the last ends in
token t + 1 + s. The text's own tokens are fed, where the paper feeds what was guessed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from unspool.models.drafters.description import DrafterSpec
from unspool.runtime.drafter.cells import trigrams

from .layers import Layers, Tensors, mixed


class ChimeraForward:
    """The forward of Chimera's one layer and its heads; `embedding` is the target's."""

    def __init__(self, spec: DrafterSpec, embedding: Tensor) -> None:
        self.spec, self.layers = spec, Layers(spec, embedding)

    def places(self, width: int) -> None:
        """It guesses at every place."""

    def __call__(self, of: Tensors, tokens: Tensor, states: Tensor, depth: int, places: None) -> Iterator[Tensor]:
        """What the head of a step reads [rows, width, dim]."""
        layers, of, width = self.layers, self.layers.narrow(of), tokens.shape[1]
        states, text = states.to(layers.embedding), torch.arange(width, device=tokens.device)
        entering = layers.normed(of, "layers.0.input_layernorm", states)
        keys, values = (layers.split(of, 0, name, entering, text) for name in "kv")
        seen, own = text[:, None] >= text, list[tuple[Tensor, Tensor]]()
        for step in range(depth):
            three = [tokens[:, (text + step + n).clamp(0, width - 1)] for n in (-1, 0, 1)]
            x = trigrams(of, torch.cat([layers.embedding[some] for some in three], -1))
            entering = layers.normed(of, "layers.0.input_layernorm", x)
            q, k, v = (layers.split(of, 0, name, entering, text + 1 + step) for name in "qkv")
            own.append((k, v))
            own_keys, own_values = (torch.stack(part, 3) for part in zip(*own, strict=True))
            every = torch.ones(1, step + 1, dtype=torch.bool, device=q.device)
            found = mixed(q[:, :, :, None], keys, values, seen, own_keys, own_values, every)[:, :, :, 0]
            out = layers.normed(of, "norm", layers.finish(of, 0, x, found))
            yield functional.linear(torch.cat([states, out], -1), of[f"heads.{step}.mix.weight"])
