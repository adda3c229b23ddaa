"""The layer of a drafter that is one of its target's own family: experts, latents, gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from ...models.layer_shape import RopeSpec
from ...models.shape import Shape
from ..cache.kv_pool import KVPool
from ..network.attention import Attention
from ..network.layer import Layer, Loader
from ..network.linear import dense
from ..network.llama import plan_key
from .drafter_network import DrafterLayers, DrafterNetwork, LayerCall

if TYPE_CHECKING:
    from ...models.weights import Checkpoint
    from ..network.latent_attention import LatentAttention


@dataclass(frozen=True)
class _Held:
    """The tensors of a drafter's file, as those who read layers ask for them."""

    shape: Shape
    tensors: Mapping[str, Tensor]

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """One of them."""
        found = self.tensors[name.removeprefix("model.")]
        return found if dtype is None else found.to(dtype)


class FamilyLayers(DrafterLayers):
    """One layer that is read and applied as the target's own are."""

    def __init__(self, network: DrafterNetwork, pool: KVPool) -> None:
        super().__init__(network, pool)
        (spec,) = self._attending
        self._planner = replace(self._planner, group=plan_key(spec)[2])

    def _read(self, network: DrafterNetwork) -> list[Layer]:
        shape, like = network.spec.shape, network.ends.embedding
        held = cast("Checkpoint", _Held(shape, network.file.tensors))  # of which no more is asked
        return [Loader(held, like.dtype, like.device, dense).layer(number) for number in range(shape.layers)]

    def _rope(self, shape: Shape) -> RopeSpec:
        mixer = shape.stack[0].mixer
        rope = None if mixer is None or mixer.kind == "recurrent" else mixer.rope
        return shape.rope if rope is None else rope

    def _seen(self, layer: Layer, entering: Tensor, call: LayerCall) -> Tensor:
        if isinstance(layer.mixer, Attention):
            return super()._seen(layer, entering, call)
        latent = cast("LatentAttention", layer.mixer)
        return latent(entering, call.number, call.turns, call.into, call.spans, self._slots)
