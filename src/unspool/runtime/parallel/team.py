"""A team: the processes that compute one model together, as one of them sees it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from ...models.share import Share
from ..network.linear import Linear
from ..network.network import Batch, NetworkOutputs, SoftTokens
from .ranks import Sharded


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


PATIENCE = timedelta(minutes=5)  # that a rank waits for another within a forward; one that dies is noticed at once
FOREVER = timedelta(days=365)  # that it waits for weights to be read, and for rank 0 to be asked for something
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
INTERFACE = "GLOO_SOCKET_IFNAME"


class SlotMove(NamedTuple):
    """What `Slots.move` is told."""

    old: Sequence[int]
    new: Sequence[int]


Work = Batch | SlotMove
"""What all ranks do at the same time."""


@dataclass(frozen=True)
class Team:
    """Ranks that have met: `mesh` is for what they compute, `words` for what rank 0 tells the others."""

    mesh: MeshCollectives
    words: dist.ProcessGroup

    def tell(self, work: Work | None) -> None:
        """Send work to all other ranks; None ends them."""
        dist.broadcast_object_list([work], 0, group=self.words, device=torch.device("cpu"))

    def hear(self) -> Work | None:
        """Wait for what rank 0 sends."""
        heard: list[Work | None] = [None]
        dist.broadcast_object_list(heard, 0, group=self.words, device=torch.device("cpu"))
        return heard[0]

    def gather(self) -> None:
        """Wait until all ranks are here, and have them sum once: DTensor imports half of torch when it first does."""
        dist.monitored_barrier(self.words, FOREVER)
        self.mesh.sum(torch.zeros(1, device=self.mesh.mesh.device_type))


def meet(share: Share, device: torch.device, folder: Path | None) -> Team:
    """Meet the other ranks: in a folder of this machine, or, without one, where torchrun says.

    torch keeps one such meeting per process, so that there can be only one team at a time.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    place = "env://" if folder is None else f"file://{folder / 'store'}"
    with nullcontext() if folder is None else _loopback():
        dist.init_process_group(backend, place, PATIENCE, share.ranks, share.rank)
        words = dist.new_group(backend="gloo", timeout=PATIENCE if share.rank == 0 else FOREVER)
    assert isinstance(words, dist.ProcessGroup)  # every rank is a member
    return Team(MeshCollectives(DeviceMesh(device.type, list(range(share.ranks))), share), words)


def perform(network: Sharded, work: Work) -> NetworkOutputs | None:
    """Do this rank's part of some work."""
    if isinstance(work, Batch):
        return network.forward(work)
    network.slots.move(work.old, work.new)
    return None


def portable(batch: Batch) -> Batch:
    """The batch as all ranks can run it: on the CPU, and with everything computed that could have been left out."""
    mixed = None if batch.mixed is None else SoftTokens(*(part.cpu() for part in batch.mixed))
    return replace(batch, mixed=mixed, renewals=())


def device_of(kind: str, rank: int) -> torch.device:
    """Where a rank computes: the CPU, or a GPU for each."""
    return torch.device(kind) if kind == "cpu" else torch.device(kind, rank)


@contextmanager
def _loopback() -> Iterator[None]:
    """Let ranks of one machine talk where no other machine listens, unless the user has chosen where."""
    own = LOOPBACK.get(sys.platform)
    if own is None or INTERFACE in os.environ:
        yield
        return
    os.environ[INTERFACE] = own
    try:
        yield
    finally:
        del os.environ[INTERFACE]
