"""Block drafters over whole texts: DFlash, DFlash2, JetSpec's causal head and DSpark, at some places of every text.

The target's states up to token t are keys and values of every layer; token t + 1 and masks behind it are the queries,
which see each other, or those before them in a causal head. A block costs as much as its places, so that only every
so-manyth place of a text has one; which, goes on from batch to batch (arXiv 2602.06036, 2606.18394, 2607.05147).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from unspool.models.drafters.description import DrafterSpec
from unspool.runtime.drafter.lattice_drafter import convolution

from .layers import Layers, Tensors, mixed


class BlockForward:
    """The forward of a block drafter; `every` says how far its places are apart."""

    def __init__(self, spec: DrafterSpec, embedding: Tensor) -> None:
        self.spec, self.layers, self.every, self._first = spec, Layers(spec, embedding), spec.block, 0

    def places(self, width: int) -> Tensor:
        """Which places guess: another set at every call."""
        self._first = (self._first + 1) % self.every
        return torch.arange(self._first, width - self.spec.block, self.every, device=self.layers.embedding.device)

    def __call__(self, of: Tensors, tokens: Tensor, states: Tensor, depth: int, places: Tensor) -> Iterator[Tensor]:
        """What the head reads [rows, width, dim] at each of so many steps; zeros where no block was."""
        spec, layers, of = self.spec, self.layers, self.layers.narrow(of)
        context = layers.normed(of, "state_norm", layers.fused(of, states))
        text = torch.arange(tokens.shape[1], device=tokens.device)
        seen = text <= places[:, None]
        ahead = torch.arange(spec.block, device=tokens.device)
        order = ahead[:, None] >= ahead if spec.causal else torch.ones_like(ahead[:, None] >= ahead)
        block = torch.full((*tokens.shape[:1], len(places), spec.block), spec.mask or 0, device=tokens.device)
        block[:, :, 0] = tokens[:, places + 1]
        x = of.get("embed.weight", layers.embedding)[block]
        for layer in range(spec.shape.layers):
            entering = layers.normed(of, f"layers.{layer}.input_layernorm", x)
            entering, behind = self._convolved(of, f"layers.{layer}.attention_conv", entering)
            keys, values = (layers.split(of, layer, name, context, text) for name in "kv")
            at = places[:, None] + 1 + ahead
            q, own_keys, own_values = (layers.split(of, layer, name, entering, at) for name in "qkv")
            attended = mixed(q, keys, values, seen, own_keys, own_values, order)
            x = x + behind(layers.gathered(of, layer, attended))
            entering = layers.normed(of, f"layers.{layer}.post_attention_layernorm", x)
            entering, behind = self._convolved(of, f"layers.{layer}.mlp_conv", entering)
            x = x + behind(layers.perceptron(of, layer, entering))
        out = layers.normed(of, "norm", x)
        for step in range(depth):
            whole = out.new_zeros(*tokens.shape, out.shape[-1])
            whole[:, places] = out[:, :, step + (not spec.anchored)]
            yield whole

    def _convolved(self, of: Tensors, name: str, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """What enters a part of a layer, and what is to be done with what leaves it; DFlash2 convolves both."""
        spec = self.spec
        if not spec.taps:
            return x, lambda y: y
        base = of[f"{name}.base_kernel"]
        dynamic = functional.linear(x, of[f"{name}.kernel_projection.weight"])
        dynamic = dynamic.view(*x.shape[:-1], 2, spec.taps, spec.groups)
        before = convolution(x, dynamic[..., 0, :, :], base[0])
        return before, lambda y: convolution(y, dynamic[..., 1, :, :], base[1])
