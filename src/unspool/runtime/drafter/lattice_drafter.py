"""DFlash2: a block drafter whose places are convolved with those before them, and whose guesses form a lattice.

At every place the K tokens that the marginal holds likeliest are weighed anew by the one before: with h the place's
state, s(x | y) = marginal(x) + Σ_r before[y]_r · (W·h)_r · after[x]_r, and no other token is guessed there. All K²
scores between two neighbouring places follow from one forward, so that trees and drawn chains know their own paths.
A convolution stands before and behind the attention and the perceptron of every layer:
y_t = Σ_o (base_o + dynamic_{t,o}) · x_{t−o}, o < taps, within the block alone, where dynamic, one number for a group of
neighbouring numbers, is linear in what enters the part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...core.law import NEVER
from ...models.drafters.description import DrafterFile
from ..cache.kv_pool import KVPool
from ..network.layer import Layer
from ..network.linear import EmbeddingAndHead
from .block_drafter import BlockDrafter
from .drafter_network import DrafterLayers, LayerCall
from .guess import Guess


class LatticeDrafter(BlockDrafter):
    """A block drafter with convolved layers and a lattice of candidates."""

    def __init__(self, file: DrafterFile, ends: EmbeddingAndHead, room: int) -> None:
        super().__init__(file, ends, room)
        self.layers = ConvolvedLayers(self, self.slots)

    def embedded(self, tokens: Sequence[int]) -> Tensor:
        return super().embedded(tokens) * self.spec.embed_scale

    @torch.no_grad()
    def logits(self, guesses: Sequence[Guess]) -> Tensor:
        """What the lattice says: scores of the candidates of each place, and nothing of all other tokens."""
        marginal = super(BlockDrafter, self).logits(guesses) * self.spec.logit_scale
        if (cap := self.spec.logit_cap) is not None:
            marginal = (marginal / cap).tanh() * cap
        hints = torch.stack([guess.hint for guess in guesses if guess.hint is not None])
        scores, candidates = marginal.topk(min(self.spec.lattice, marginal.shape[1]))
        words = candidates if self.ids is None else self.ids[candidates]
        scores = scores + (self.tensors["selector.after"][words] @ hints[:, :, None])[:, :, 0]
        return torch.full_like(marginal, NEVER).scatter_(1, candidates, scores)

    @torch.no_grad()
    def _hinted(self, guess: Guess, state: Tensor | None) -> Guess:
        if len(guess.ahead):
            here = F.linear(guess.ahead[0], self.tensors["selector.state.weight"])
            guess.hint = self.tensors["selector.before"][guess.token] * here
        return guess


class ConvolvedLayers(DrafterLayers):
    """Layers over blocks of places, with convolutions around their parts."""

    def __init__(self, network: LatticeDrafter, pool: KVPool) -> None:
        super().__init__(network, pool)
        self._network = network

    def _one(self, layer: Layer, x: Tensor, call: LayerCall) -> Tensor:
        assert layer.mlp is not None
        y, behind = self._before(f"layers.{call.number}.attention_conv", self._normed(x, layer.before_attention))
        x = x + behind(layer.attention.out(self._seen(layer, y, call)))
        y, behind = self._before(f"layers.{call.number}.mlp_conv", self._normed(x, layer.before_mlp))
        return x + behind(layer.mlp(y))

    def _before(self, name: str, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """What enters a part, and what is to be done with what leaves it."""
        spec, tensors = self._network.spec, self._network.tensors
        base = tensors[f"{name}.base_kernel"]
        dynamic = F.linear(x, tensors[f"{name}.kernel_projection.weight"]).view(
            -1, spec.block, 2, spec.taps, spec.groups
        )

        def convolved(x: Tensor, side: int) -> Tensor:
            blocks = x.reshape(-1, spec.block, x.shape[-1])
            return convolution(blocks, dynamic[:, :, side], base[side]).view(x.shape)

        return convolved(x, 0), lambda y: convolved(y, 1)


def convolution(x: Tensor, dynamic: Tensor, base: Tensor) -> Tensor:
    """Σ_o (base_o + dynamic_{t,o}) · x_{t−o} over places of blocks x [..., places, dim].

    dynamic [..., places, taps, groups] counts for groups of neighbouring numbers, base [taps, dim] for each.
    """
    each, out = x.shape[-1] // dynamic.shape[-1], torch.zeros_like(x)
    for tap in range(min(len(base), x.shape[-2])):
        weight = base[tap] + dynamic[..., tap, :].repeat_interleave(each, -1)
        out = out + weight * F.pad(x, (0, 0, tap, 0))[..., : x.shape[-2], :]
    return out
