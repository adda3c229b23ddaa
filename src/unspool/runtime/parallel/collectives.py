"""What ranks do together in the middle of a forward: sum what each has computed, and join the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from ...models.share import Share
from ..network.linear import Linear


class Collectives(Protocol):
    """The other ranks, as one of them sees them. All must call the same things in the same order."""

    @property
    def share(self) -> Share:
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
    share: Share

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
class ColumnParallel:
    """A matrix of which every rank has some rows, with the results side by side."""

    linear: Linear
    together: Collectives
    width: int

    def __call__(self, x: Tensor) -> Tensor:
        return self.together.join(self.linear(x), self.width)
