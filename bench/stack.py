"""A whole step of a network of random weights, made of the kernels alone: a measure for any runtime built on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from kernels import DEVICE, EPS, Model, Product, made, products, rope_inputs, rows_of, weight_of
from torch import Tensor

from unspool.kernels.attention import attention
from unspool.kernels.kernel_rows import Rows
from unspool.kernels.linear import linear
from unspool.kernels.rope import rope
from unspool.kernels.verify import Verdicts, verify


@dataclass(frozen=True)
class Inputs:
    """A row with a tree of tokens below a text."""

    tokens: Tensor
    rows: Rows
    slots: int
    cos: Tensor
    sin: Tensor
    uniforms: Tensor
    parents: Tensor


class Stack:
    """Layers of random weights with their pools."""

    def __init__(self, model: Model, layers: int, slots: int) -> None:
        self.model = model
        *self.parts, self.head = products(model)
        self.layers = [self._layer(slots) for _ in range(layers)]
        self.embedding = weight_of(self.head)
        self.norm = made(model.dim)

    def _layer(self, slots: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
        norms = [made(self.model.dim) for _ in range(2)]
        pools = made(2, self.model.kv_heads, slots, self.model.width)
        return [weight_of(part) for part in self.parts], norms, pools

    @property
    def bytes(self) -> int:
        """What a step reads of the weights."""
        each: list[Product] = self.parts
        return sum(part.bytes for part in each) * len(self.layers) + self.head.bytes

    def step(self, inputs: Inputs) -> Verdicts:
        """Embed, run all layers, score all tokens and follow the best ones down the tree."""
        model, rows = self.model, inputs.rows
        x = F.embedding(inputs.tokens, self.embedding)
        for (qkv, out, gate_up, down), (first, second), (keys, values) in self.layers:
            together = linear(x, qkv, norm=first, eps=EPS)
            queries = rope(together, None, EPS, inputs.cos, inputs.sin, rows.places, rows.slots, keys, values)
            seen = attention(queries, keys, values, rows, model.width**-0.5)
            x = linear(seen, out, residual=x)
            x = linear(linear(x, gate_up, norm=second, eps=EPS, activation="silu"), down, residual=x)
        logits = linear(x, self.embedding, norm=self.norm, eps=EPS)
        cold = torch.zeros(rows.number, device=DEVICE)
        roots = torch.zeros(rows.number, dtype=torch.int32, device=DEVICE)
        return verify(logits, inputs.tokens.int(), inputs.parents, roots, rows.count, cold, inputs.uniforms)


def inputs_of(model: Model, number: int, tokens: int, context: int) -> Inputs:
    """Random tokens in rows of random trees."""
    rows, slots = rows_of(number, tokens, context)
    n = number * tokens
    _, _, _, cos, sin, _, _ = rope_inputs(model, 1)
    parents = (torch.arange(n, device=DEVICE) % tokens - 1).int()
    drafted = torch.randint(0, model.vocab, (n,), device=DEVICE)
    return Inputs(drafted, rows, slots, cos, sin, torch.rand(n, dtype=torch.float64, device=DEVICE), parents)
