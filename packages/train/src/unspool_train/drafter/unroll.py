"""A drafter's forward over whole texts while it is trained: what it guesses at every place, one, two, … tokens ahead.

Training-time test (EAGLE-3, arXiv 2503.01840): step 0 reads the target's states, and step s the drafter's own output of
step s − 1 beside the text's next token, as it will when it drafts. Place t of step s sees the keys of step 0 up to t
and, of the steps after it, its own alone; its rotary position is t + s. Drafters that guess a block of masks (P-EAGLE)
differ only in what a step reads: a mask and its learned state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from unspool.models.drafters.description import DrafterSpec
from unspool.runtime.drafter.cross_drafter import MIDDLE

from .layers import Layers, Tensors, mixed


@dataclass
class Keys:
    """What a layer attends to: keys and values of step 0 [rows, heads, width, size], and of each step after it."""

    first: tuple[Tensor, Tensor]
    own: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class Unroll:
    """The forward of a drafter of this description over texts; `embedding` is the target's."""

    def __init__(self, spec: DrafterSpec, embedding: Tensor) -> None:
        self.spec, self.layers = spec, Layers(spec, embedding)
        self.attend: Callable[..., Tensor] = mixed

    def places(self, width: int) -> None:
        """It guesses at every place."""

    def __call__(self, of: Tensors, tokens: Tensor, states: Tensor, depth: int, places: None) -> Iterator[Tensor]:
        """What the head reads [rows, width, dim] at each of so many steps: at t of step s, to guess token t + 2 + s.

        `states` are the target's, those that the drafter reads side by side. What stands near the end of a row, where
        its tokens are over, is no guess of anything.
        """
        of, memory = self.layers.narrow(of), list[Keys]()
        state = self.layers.fused(of, states)
        words = of.get("embed.weight", self.layers.embedding)
        for step in range(depth):
            ahead = functional.pad(tokens[:, 1 + step :], (0, 1 + step))
            if step and self.spec.block:
                ahead = torch.full_like(tokens, self.spec.mask or 0)
                if "mask_state" in of:
                    state = self.layers.fused(of, of["mask_state"]).expand(*tokens.shape, -1)
            y = self._through(of, words[ahead], state, memory, step)
            if self.spec.experts:
                near, far = (self.layers.normed(of, "norm", each) for each in y.chunk(2, -1))
                yield near
                if step == depth - 2:  # whose forward tells the last place too
                    yield far
                    return
                state = near
                continue
            out = self.layers.normed(of, "norm", y)
            yield out
            if self.spec.join == "add":  # what is drafted has no state
                state = torch.zeros_like(state)
            else:
                state = out if self.spec.recycles_normed else y

    def _through(self, of: Tensors, words: Tensor, states: Tensor, memory: list[Keys], step: int) -> Tensor:
        """What leaves the last layer for tokens with their states."""
        spec, normed = self.spec, self.layers.normed
        if spec.join == "cross":
            return self._crossed(of, words, states, memory, step)
        if spec.join == "add":
            return self._layered(of, words + lifted(of, states), None, memory, step)
        state, attends = normed(of, "state_norm", states), spec.join == "attend"
        pair = [normed(of, "layers.0.input_layernorm" if attends else "embed_norm", words), state]
        both = torch.cat(pair if spec.embedding_first else pair[::-1], -1)
        if attends:
            x = state if spec.residual_normed else states
        else:
            x = functional.linear(both, of["join.weight"], of.get("join.bias"))
        return self._layered(of, x, both if attends else None, memory, step)

    def _layered(self, of: Tensors, x: Tensor, first: Tensor | None, memory: list[Keys], step: int) -> Tensor:
        for layer in range(self.spec.shape.layers):
            plain = self.layers.normed(of, f"layers.{layer}.input_layernorm", x)
            seen = self._attended(of, layer, plain if first is None or layer else first, memory, step)
            x = self.layers.finish(of, layer, x, seen)
        return x

    def _crossed(self, of: Tensors, x: Tensor, states: Tensor, memory: list[Keys], step: int) -> Tensor:
        """DREAM's three layers, of which the middle one looks at states, through gates."""
        layers, (look, think) = self.layers, of["cross.gates"].tanh()
        for layer in range(self.spec.shape.layers):
            plain = layers.normed(of, f"layers.{layer}.input_layernorm", x)
            if layer != MIDDLE:
                x = layers.finish(of, layer, x, self._attended(of, layer, plain, memory, step))
                continue
            x = x + look * layers.gathered(of, layer, self._attended(of, layer, plain, memory, step, states))
            after = layers.normed(of, f"layers.{layer}.post_attention_layernorm", x)
            x = x + think * layers.perceptron(of, layer, after)
        return x

    def _attended(
        self, of: Tensors, layer: int, entering: Tensor, memory: list[Keys], step: int, keyed: Tensor | None = None
    ) -> Tensor:
        """What heads attend to; with `keyed` its keys and values are made of that, and heads are normed (DREAM)."""
        places = torch.arange(entering.shape[1], device=entering.device)
        told = {"q": entering, "k": entering if keyed is None else keyed, "v": entering if keyed is None else keyed}
        norm = None if keyed is None else "cross"
        q, k, v = (self.layers.split(of, layer, name, x, places + step, norm) for name, x in told.items())
        if step == 0:
            memory.append(Keys((k, v)))
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        keys = memory[layer]
        keys.own.append((k, v))
        own_keys, own_values = (torch.stack(part, 3) for part in zip(*keys.own, strict=True))
        seen = places[:, None] >= places
        every = torch.ones(1, step, dtype=torch.bool, device=q.device)
        return self.attend(q[:, :, :, None], *keys.first, seen, own_keys, own_values, every)[:, :, :, 0]


def lifted(of: Tensors, states: Tensor) -> Tensor:
    """W2·ReLU(W1·h), 0 for a drafter that reads tokens alone."""
    if "lift.up.weight" not in of:
        return torch.zeros_like(states)
    return functional.linear(functional.relu(functional.linear(states, of["lift.up.weight"])), of["lift.down.weight"])
