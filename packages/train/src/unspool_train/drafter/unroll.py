"""A drafter's forward over whole texts while it is trained: what it guesses at every place, one, two, … tokens ahead.

Training-time test (EAGLE-3, arXiv 2503.01840): step 0 reads the target's states, and step s the drafter's own output of
step s − 1 beside the text's next token, as it will when it drafts. Place t of step s sees the keys of step 0 up to t
and, of the steps after it, its own alone; its rotary position is t + s. Drafters that guess a block of masks (P-EAGLE)
differ only in what a step reads: a mask and its learned state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from unspool.models.drafters.description import DrafterSpec
from unspool.models.rope_scaling import rope_frequencies

from ..network import normed, turned

Tensors = Mapping[str, Tensor]


@dataclass
class Keys:
    """What a layer attends to: keys and values of step 0 [rows, heads, width, size], and of each step after it."""

    first: tuple[Tensor, Tensor]
    own: list[tuple[Tensor, Tensor]] = field(default_factory=list)


def mixed(q: Tensor, keys: Tensor, values: Tensor, own_keys: Tensor, own_values: Tensor) -> Tensor:
    """One softmax over the keys of step 0 up to each place, and over the place's own keys [rows, heads, width, steps].

    Keys have as many heads as queries here.
    """
    width, scale = q.shape[2], 1 / math.sqrt(q.shape[-1])
    past = (q * scale) @ keys.transpose(-1, -2)
    later = torch.ones(width, width, dtype=torch.bool, device=q.device).triu(1)
    past = past.masked_fill(later, -math.inf)
    own = (q[:, :, :, None] * scale * own_keys).sum(-1)
    share = torch.cat([past, own], -1).float().softmax(-1).to(q.dtype)
    return share[..., :width] @ values + (share[..., width:, None] * own_values).sum(-2)


class Unroll:
    """The forward of a drafter of this description over texts; `embedding` is the target's."""

    def __init__(self, spec: DrafterSpec, embedding: Tensor) -> None:
        self.spec, self.embedding, self.dtype = spec, embedding, embedding.dtype
        self.frequencies = rope_frequencies(spec.shape.rope, embedding.device)[0]

    def __call__(self, of: Tensors, tokens: Tensor, states: Tensor, depth: int) -> Iterator[Tensor]:
        """What the head reads [rows, width, dim] at each of so many steps: at t of step s, to guess token t + 2 + s.

        `states` are the target's, those that the drafter reads side by side. What stands near the end of a row, where
        its tokens are over, is no guess of anything.
        """
        of = {name: tensor.to(self.dtype) for name, tensor in of.items()}
        memory: list[Keys] = []
        state = self._fused(of, states)
        for step in range(depth):
            ahead = functional.pad(tokens[:, 1 + step :], (0, 1 + step))
            if step and self.spec.block:
                ahead = torch.full_like(tokens, self.spec.mask or 0)
                state = self._fused(of, of["mask_state"]).expand(*tokens.shape, -1)
            y = self._through(of, of.get("embed.weight", self.embedding)[ahead], state, memory, step)
            out = self._normed(of, "norm", y)
            yield out
            state = out if self.spec.recycles_normed else y

    def _normed(self, of: Tensors, name: str, x: Tensor) -> Tensor:
        weight = of.get(f"{name}.weight")
        return x if weight is None else normed(x, weight, self.spec.shape.norm_eps)

    def _fused(self, of: Tensors, states: Tensor) -> Tensor:
        states = self._normed(of, "fuse_norm", states)
        if "fuse_norm.0.weight" in of:
            parts = states.chunk(len(self.spec.states), -1)
            states = torch.cat([self._normed(of, f"fuse_norm.{n}", part) for n, part in enumerate(parts)], -1)
        weight = of.get("fuse.weight")
        return states if weight is None else functional.linear(states, weight, of.get("fuse.bias"))

    def _through(self, of: Tensors, words: Tensor, states: Tensor, memory: list[Keys], step: int) -> Tensor:
        """What leaves the last layer for tokens with their states."""
        spec, state = self.spec, self._normed(of, "state_norm", states)
        attends = spec.join == "attend"
        pair = [self._normed(of, "layers.0.input_layernorm" if attends else "embed_norm", words), state]
        both = torch.cat(pair if spec.embedding_first else pair[::-1], -1)
        if attends:
            x = state if spec.residual_normed else states
        else:
            x = functional.linear(both, of["join.weight"], of.get("join.bias"))
        for layer in range(spec.shape.layers):
            plain = self._normed(of, f"layers.{layer}.input_layernorm", x)
            x = self._layer(of, layer, x, both if attends and layer == 0 else plain, memory, step)
        return x

    def _layer(self, of: Tensors, layer: int, x: Tensor, entering: Tensor, memory: list[Keys], step: int) -> Tensor:
        shape, at = self.spec.shape, f"layers.{layer}."
        q, k, v = (self._split(of, f"{at}self_attn.{name}", entering, step) for name in "qkv")
        groups = shape.heads // shape.kv_heads
        if step == 0:
            memory.append(Keys((k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1))))
            seen = functional.scaled_dot_product_attention(q, *memory[layer].first, is_causal=True)
        else:
            keys = memory[layer]
            keys.own.append((k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)))
            own_keys, own_values = (torch.stack(part, 3) for part in zip(*keys.own, strict=True))
            seen = mixed(q, *keys.first, own_keys, own_values)
        x = x + functional.linear(seen.transpose(1, 2).flatten(2), of[f"{at}self_attn.o_proj.weight"])
        y = self._normed(of, f"{at}post_attention_layernorm", x)
        gate, up = (functional.linear(y, of[f"{at}mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        return x + functional.linear(functional.silu(gate) * up, of[f"{at}mlp.down_proj.weight"])

    def _split(self, of: Tensors, name: str, x: Tensor, step: int) -> Tensor:
        """Queries, keys or values [rows, heads, width, size], the first two turned to their places."""
        made = functional.linear(x, of[f"{name}_proj.weight"]).view(*x.shape[:-1], -1, self.spec.shape.head_dim)
        made = self._normed(of, f"{name}_norm", made).transpose(1, 2)
        if name.endswith("v"):
            return made
        angle = (torch.arange(x.shape[1], device=x.device).float() + step)[:, None] * self.frequencies
        return turned(made, angle.cos(), angle.sin())
