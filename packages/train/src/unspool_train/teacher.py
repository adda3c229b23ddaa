"""The frozen model that drafters and heads learn from: the hidden states that they read, and its laws."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor
from torch.nn import functional

from .chunked_loss import CHUNK
from .training_network import Frozen, layer, normed


class Teacher:
    """The frozen model: the states that heads read, and the laws that they are to foresee."""

    def __init__(self, frozen: Frozen, compiled: bool = False) -> None:
        self.frozen, self.dtype = frozen, torch.bfloat16 if frozen.head.is_cuda else torch.float32
        self.head, self.embedding = frozen.head.to(self.dtype), frozen.embedding.to(self.dtype)
        self.layer: Callable[..., Tensor] = torch.compile(layer, dynamic=True) if compiled else layer
        self.layers = [frozen.laid_out(frozen.base, index, self.dtype) for index in range(frozen.shape.layers)]

    def states(self, tokens: Tensor) -> Tensor:
        """What leaves the last norm [rows, width, dim]."""
        last = self.frozen.shape.layers
        return self.noted(tokens, [last])[last]

    @torch.no_grad()
    def noted(self, tokens: Tensor, numbers: Collection[int]) -> dict[int, Tensor]:
        """Hidden states [rows, width, dim] by their numbers: i enters layer i, and the last has left the last norm."""
        shape, found = self.frozen.shape, dict[int, Tensor]()
        cos, sin = self.frozen.rotation(torch.arange(tokens.shape[1], device=tokens.device)[None, None])
        x = self.embedding[tokens]
        for number, weights in enumerate(self.layers):
            if number in numbers:
                found[number] = x
            x = self.layer(x, *weights, cos, sin, None, shape.heads, shape.kv_heads, shape.norm_eps)
        found[shape.layers] = normed(x, self.frozen.base["norm"], shape.norm_eps)
        return found

    @torch.no_grad()
    def laws(self, states: Tensor, ids: Tensor | None, temperature: float = 1.0) -> Tensor:
        """The laws [n, known] that follow from states behind the last norm, of those tokens alone that are known."""
        found = []
        for some in torch.split(states, CHUNK):
            logits = functional.linear(some, self.head).float() / temperature
            law = logits.softmax(1)
            found.append((law if ids is None else law[:, ids]).to(self.dtype))
        return torch.cat(found) if found else states.new_zeros(0, len(self.head) if ids is None else len(ids))
