"""The layers of a drafter over whole texts: norms, queries, keys, values, and attention to a text and to own places."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from unspool.models.drafters.description import DrafterSpec
from unspool.models.rope_scaling import rope_frequencies
from unspool.runtime.drafter.cells import contrasted

from ..training_network import normed, turned

Tensors = Mapping[str, Tensor]


def mixed(
    q: Tensor, keys: Tensor, values: Tensor, seen: Tensor, own_keys: Tensor, own_values: Tensor, own_seen: Tensor
) -> Tensor:
    """One softmax over a text's keys and over keys of one's own: [rows, heads, places, queries, size].

    Each of some places has a few queries, which see the keys [rows, heads, width, size] that its place sees
    (`seen` [places, width]) and of its own keys [rows, heads, places, own, size] those in `own_seen` [queries, own].
    """
    places, count, scale = q.shape[2], q.shape[3], 1 / math.sqrt(q.shape[-1])
    q = q * scale
    past = (q.flatten(2, 3) @ keys.transpose(-1, -2)).unflatten(2, (places, count))  # type: ignore[no-untyped-call]
    past = past.masked_fill(~seen[:, None], -math.inf)
    own = (q[..., None, :] * own_keys[:, :, :, None]).sum(-1).masked_fill(~own_seen, -math.inf)
    share = torch.cat([past, own], -1).float().softmax(-1).to(q.dtype)
    width = keys.shape[2]
    text = (share[..., :width].flatten(2, 3) @ values).view(q.shape)
    return text + (share[..., width:, None] * own_values[:, :, :, None]).sum(-2)


class Layers:
    """What all forwards of drafters of this description do with their tensors, which are given by our names."""

    def __init__(self, spec: DrafterSpec, embedding: Tensor) -> None:
        self.spec, self.embedding, self.dtype = spec, embedding, embedding.dtype
        self.frequencies = rope_frequencies(spec.shape.rope, embedding.device)[0]
        self.groups = spec.shape.heads // spec.shape.kv_heads

    def narrow(self, of: Tensors) -> dict[str, Tensor]:
        """The tensors in the type that is computed in."""
        return {name: tensor.to(self.dtype) for name, tensor in of.items()}

    def normed(self, of: Tensors, name: str, x: Tensor) -> Tensor:
        """What the norm of this name makes of x; x itself if there is none."""
        weight = of.get(f"{name}.weight")
        return x if weight is None else normed(x, weight, self.spec.shape.norm_eps)

    def fused(self, of: Tensors, states: Tensor) -> Tensor:
        """States side by side as one of the drafter's own width."""
        states = self.normed(of, "fuse_norm", states)
        if "fuse_norm.0.weight" in of:
            parts = states.chunk(len(self.spec.states), -1)
            states = torch.cat([self.normed(of, f"fuse_norm.{n}", part) for n, part in enumerate(parts)], -1)
        weight = of.get("fuse.weight")
        return states if weight is None else functional.linear(states, weight, of.get("fuse.bias"))

    def split(self, of: Tensors, layer: int, name: str, x: Tensor, places: Tensor, norms: str | None = None) -> Tensor:
        """Queries, keys or values [rows, heads, …, size] of x [rows, …, dim], the first two turned to their places.

        Keys and values are repeated, so that there are as many heads of them as of queries. `norms` says where norms of
        heads stand if not in the layer.
        """
        at = f"layers.{layer}.self_attn"
        made = functional.linear(x, of[f"{at}.{name}_proj.weight"]).view(*x.shape[:-1], -1, self.spec.shape.head_dim)
        made = self.normed(of, f"{norms or at}.{name}_norm", made).movedim(-2, 1)
        if name != "v":
            angle = places.float()[..., None] * self.frequencies
            made = turned(made, angle.cos(), angle.sin())
        return made if name == "q" else made.repeat_interleave(self.groups, 1)

    def finish(self, of: Tensors, layer: int, x: Tensor, seen: Tensor) -> Tensor:
        """x with what was attended to [rows, heads, …, size], and through the perceptron."""
        x = x + self.gathered(of, layer, seen)
        y = self.normed(of, f"layers.{layer}.post_attention_layernorm", x)
        if self.spec.experts and layer == self.spec.shape.layers - 1:
            return torch.cat([x + each for each in contrasted(of, self.spec.experts, y)], -1)
        return x + self.perceptron(of, layer, y)

    def gathered(self, of: Tensors, layer: int, seen: Tensor) -> Tensor:
        """What all heads have attended to [rows, heads, …, size], as one vector for each place."""
        return functional.linear(seen.movedim(1, -2).flatten(-2), of[f"layers.{layer}.self_attn.o_proj.weight"])

    def perceptron(self, of: Tensors, layer: int, y: Tensor) -> Tensor:
        """What a layer's perceptron makes of what enters it."""
        gate, up = (functional.linear(y, of[f"layers.{layer}.mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        return functional.linear(functional.silu(gate) * up, of[f"layers.{layer}.mlp.down_proj.weight"])
