"""A team: the processes that compute one model together, as one of them sees it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ...models.share import RankShare
from ..cache.checkpoint_pool import RecurrentPool
from ..network.network import Batch, NetworkOutputs, SoftTokens
from .sharded import MeshCollectives, Sharded

PATIENCE = timedelta(minutes=5)  # that a rank waits for another within a forward; one that dies is noticed at once
FOREVER = timedelta(days=365)  # that it waits for weights to be read, and for rank 0 to be asked for something
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
INTERFACE = "GLOO_SOCKET_IFNAME"


class SlotMove(NamedTuple):
    """What `Slots.move` is told."""

    old: Sequence[int]
    new: Sequence[int]


class SlotDrop(NamedTuple):
    """Slots that nobody uses any more, behind which recurrent layers may have kept a state."""

    slots: Sequence[int]


Work = Batch | SlotMove | SlotDrop
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


def meet(share: RankShare, device: torch.device, folder: Path | None) -> Team:
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
    if isinstance(work, SlotMove):
        network.slots.move(work.old, work.new)
    else:
        assert isinstance(network.slots, RecurrentPool)
        network.slots.checkpoints.drop(work.slots)
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
