"""A rank's share of the Llama family: the network of its heads, with a sum over all ranks behind attention and MLP.

What ranks do together in the middle of a forward: sum what each has computed, and join the logits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, cast

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from ...models.share import RankCheckpoint, RankShare, divided
from ...models.weights import Checkpoint
from ..network.attention import Attention
from ..network.experts import Experts, ExpertsBeside
from ..network.latent_attention import LatentAttention
from ..network.layer import Layer
from ..network.linear import GatedMLP, Linear, SquaredMLP, dense
from ..network.llama import Llama
from ..network.network import Batch


class Collectives(Protocol):
    """The other ranks, as one of them sees them. All must call the same things in the same order."""

    @property
    def share(self) -> RankShare:
        """Which rank this is."""

    def sum(self, x: Tensor) -> Tensor:
        """The sum of what all ranks give, the same everywhere."""

    def join(self, x: Tensor, width: int) -> Tensor:
        """The columns [n, part] of all ranks side by side [n, width]."""


@dataclass(frozen=True)
class MeshCollectives:
    """Ranks on a mesh of torch's: DTensors that are partial sums or shards, redistributed to be whole on each.

    Matrices and what flows between them stay plain tensors, and only these two places are DTensors: the kernels of
    `network.linear` and the slots choose by the type and layout of what they are given, and DTensor's own dispatch
    would cost every operation a fraction of a millisecond.
    """

    mesh: DeviceMesh
    share: RankShare

    def sum(self, x: Tensor) -> Tensor:
        partial = DTensor.from_local(x.contiguous(), self.mesh, [Partial()], run_check=False)
        return partial.redistribute(self.mesh, [Replicate()]).to_local()

    def join(self, x: Tensor, width: int) -> Tensor:
        whole = torch.Size((x.shape[0], width))
        shard = DTensor.from_local(
            x.contiguous(), self.mesh, [Shard(1)], run_check=False, shape=whole, stride=(width, 1)
        )
        return shard.full_tensor()


@dataclass(frozen=True)
class RowParallel:
    """A matrix of which every rank has some columns: x ↦ Σ_r x_r·W_rᵀ."""

    linear: Linear
    together: Collectives

    def __call__(self, x: Tensor) -> Tensor:
        return self.together.sum(self.linear(x))


@dataclass(frozen=True)
class RowParallelExperts:
    """Experts of which every rank has some hidden numbers: Σ_r Σ_e w_e·expert_re(x), one sum for all of them.

    All ranks route alike, since the router and what it reads are whole on each.
    """

    experts: Experts
    together: Collectives

    def __call__(self, x: Tensor) -> Tensor:
        return self.together.sum(self.experts(x))

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The experts of each token and their weights."""
        return self.experts.route(x)

    def summed(self, x: Tensor, chosen: Tensor, weight: Tensor) -> Tensor:
        """What the chosen experts say of each token, weighed and summed."""
        return self.together.sum(self.experts.summed(x, chosen, weight))


@dataclass(frozen=True)
class ColumnParallel:
    """A matrix of which every rank has some rows, with the results side by side."""

    linear: Linear
    together: Collectives
    width: int

    def __call__(self, x: Tensor) -> Tensor:
        return self.together.join(self.linear(x), self.width)


class Sharded(Llama):
    """The same numbers as `Llama`, up to the order of a sum, if all ranks run the same batch.

    With R ranks, rank r has the heads and hidden numbers of its share, and slots for its key-value heads alone:
    x + Σ_r out_r(attention_r(x)), and then h + Σ_r down_r(bend(gate_r(h))·up_r(h)). The residual stream, norms,
    embeddings, routers, latents and recurrent layers are whole on every rank, and so are the logits, of which each
    computes its part of the vocabulary.
    Renewal compares values of all heads, which no rank has: batches with renewals must not come here.

    Cost: two all-reduces [tokens, dim] a layer and one all-gather [read, vocab] a forward.
    """

    @classmethod
    def of(
        cls,
        whole: Checkpoint,
        together: Collectives,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        room: int | None = None,
    ) -> Sharded:
        """Read this rank's share of the weights."""
        network = cls.load(RankCheckpoint(whole, together.share), dtype, device, room)
        ends, shape = network.ends, network.shape
        tokens = together.share.tokens(shape.vocab)
        head = dense(ends.embedding[tokens.start : tokens.stop], None) if shape.tied else ends.head
        network.ends = replace(ends, head=ColumnParallel(head, together, shape.vocab))
        specs = whole.shape.stack
        network._stack = [_summed(layer, divided(specs[n].mixer), together) for n, layer in enumerate(network._stack)]
        return network

    def check(self, batch: Batch) -> None:
        """Refuse a batch that cannot be run, before any rank hears of it."""
        self._check(batch)


def _summed(layer: Layer, divided: bool, together: Collectives) -> Layer:
    """The layer with a sum over the ranks behind every part of which each has a share."""
    mixer = layer.mixer
    if divided:
        assert isinstance(mixer, Attention | LatentAttention)
        mixer = replace(mixer, out=RowParallel(mixer.out, together))
    mlp = layer.mlp
    if isinstance(mlp, GatedMLP | SquaredMLP):
        return replace(layer, mixer=mixer, mlp=_down(mlp, together))
    if isinstance(mlp, ExpertsBeside):
        experts = cast("Experts", RowParallelExperts(mlp.experts, together))
        return replace(layer, mixer=mixer, mlp=replace(mlp, mlp=_down(mlp.mlp, together), experts=experts))
    whole = None if mlp is None else cast("Experts", RowParallelExperts(mlp, together))
    return replace(layer, mixer=mixer, mlp=whole)


def _down(mlp: GatedMLP | SquaredMLP, together: Collectives) -> GatedMLP | SquaredMLP:
    return replace(mlp, down=RowParallel(mlp.down, together))
