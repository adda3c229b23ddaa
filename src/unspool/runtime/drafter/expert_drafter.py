"""Jakiro: a feature drafter whose experts guess two tokens at once where a draft ends (arXiv 2502.06282)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..cache.kv_pool import KVPool
from ..network.layer import Layer
from ..network.linear import rms
from .cells import contrasted
from .drafter_network import DrafterLayers, DrafterNetwork
from .feature_drafter import FeatureDrafter
from .guess import Guess, Step


class ExpertLayers(DrafterLayers):
    """Layers of which the last has experts: two vectors leave it, for the next token and the one behind it."""

    def __init__(self, network: DrafterNetwork, pool: KVPool) -> None:
        super().__init__(network, pool)
        self._tensors, self._experts = network.tensors, network.spec.experts

    def _finish(self, layer: Layer, x: Tensor, seen: Tensor) -> Tensor:
        x = super()._finish(layer, x, seen)
        if layer.mlp is not None:
            return x
        assert layer.before_mlp is not None
        near, far = contrasted(self._tensors, self._experts, rms(x, layer.before_mlp, self.shape.norm_eps))
        return torch.cat([x + near, x + far], -1)


class ExpertDrafter(FeatureDrafter):
    """Token by token down to the last place but one, whose forward tells the last place too; then nothing more."""

    def _layers(self) -> DrafterLayers:
        return ExpertLayers(self, self.slots)

    @torch.no_grad()
    def grow(self, steps: Sequence[Step], slots: Sequence[int]) -> list[Guess]:
        most, taken = self.spec.depth or 0, list(slots)
        asked = [n for n, step in enumerate(steps) if step.under.depth + 1 < most and len(step.under.ahead) == 1]
        found = [Guess(s.token, s.under.depth + 1, s.under.ahead[1:], above=s.under) for s in steps]
        for step in (step for n, step in enumerate(steps) if n not in set(asked)):
            step.text.drafts.append(taken.pop())  # given back with the others, though nothing stands in it
            step.text.depths.append(0)
        if asked:
            for number, guess in zip(asked, super().grow([steps[n] for n in asked], taken), strict=True):
                found[number] = guess
        return found

    def _outputs(self, y: Tensor) -> tuple[Tensor, Tensor]:
        both = self.normed("norm", y.view(len(y), 2, -1))
        return both, both[:, 0]

    def _ahead(self, out: Tensor, row: int, depth: int) -> Tensor:
        return out[row, : 2 if depth == (self.spec.depth or 0) - 2 else 1]
