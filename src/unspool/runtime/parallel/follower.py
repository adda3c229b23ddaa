"""A follower: the process of rank 1, 2, …, which does its part of whatever rank 0 does, until that ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ...models.share import RankShare
from ...models.weights import open_checkpoint
from .sharded import Sharded
from .team import Team, device_of, meet, perform

PAUSE = 0.5  # seconds before it says why it has failed


@dataclass(frozen=True)
class Orders:
    """What a follower must know before it can meet the others; `folder` is where."""

    file: str
    dtype: str
    device: str
    room: int | None
    rank: int
    ranks: int
    folder: str

    def written(self) -> str:
        """As one argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Orders:
        """From that argument."""
        told: dict[str, Any] = json.loads(text)
        return cls(**told)

    @property
    def here(self) -> Path:
        """The file that says that it has started."""
        return Path(self.folder, f"here-{self.rank}")


def follow(team: Team, network: Sharded) -> None:
    """Do what rank 0 tells, until it tells that this was all."""
    team.gather()
    while (work := team.hear()) is not None:
        perform(network, work)


def _end_with_rank_0() -> None:
    """Whatever way rank 0 ends in, the pipe from it then closes."""
    sys.stdin.buffer.read()
    os._exit(0)


def main(orders: Orders) -> None:
    """Be this rank, and leave without the clean-up that would wait for ranks that may be gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for rank 0, which may go on
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    try:
        device = device_of(orders.device, orders.rank)
        checkpoint = open_checkpoint(orders.file)
        orders.here.touch()
        team = meet(RankShare(orders.rank, orders.ranks), device, Path(orders.folder))
        follow(team, Sharded.of(checkpoint, team.mesh, getattr(torch, orders.dtype), device, orders.room))
    except BaseException as error:
        time.sleep(PAUSE)  # if it is rank 0 that has gone, the pipe tells, and there is nothing to say
        print(f"unspool: rank {orders.rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main(Orders.read(sys.argv[1]))
