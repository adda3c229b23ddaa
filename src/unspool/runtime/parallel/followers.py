"""The processes of ranks 1, 2, …, as rank 0 looks after them: none outlives it, and none ends unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from ...core.errors import RankLost
from ..process_setting import ProcessSetting
from .follower import Orders
from .team import INTERFACE, LOOPBACK

GRACE = 5.0  # seconds that they have to end by themselves
PAUSE = 0.02  # seconds between two looks at them
THREADS = ProcessSetting(torch.get_num_threads, torch.set_num_threads)  # those that ranks on one CPU share


class Followers:
    """The processes of the other ranks that were started here; none under torchrun, which looks after its own."""

    def __init__(self, orders: Sequence[Orders] = ()) -> None:
        threads = torch.get_num_threads()
        self._holds = False
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            for order in orders:
                self.processes.append(_started(order, threads))
        except BaseException:
            self.end()
            raise
        if orders and orders[0].device == "cpu":
            THREADS.hold(_shared(threads, orders[0].ranks))
            self._holds = True

    def wait(self, orders: Sequence[Orders]) -> None:
        """Wait until all have started."""
        while not all(order.here.exists() for order in orders):
            if (lost := self.lost(0)) is not None:
                raise RankLost(f"The ranks of this model could not be started: {lost}.")
            time.sleep(PAUSE)

    def lost(self, patience: float) -> str | None:
        """Which one has ended and how, if one does within so many seconds."""
        began = time.monotonic()
        while True:
            for rank, process in enumerate(self.processes, 1):
                status = process.poll()
                if status is not None:
                    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
                    return f"rank {rank} (process {process.pid}) {how}"
            if time.monotonic() - began >= patience or not self.processes:
                return None
            time.sleep(PAUSE)

    def kill(self) -> None:
        """End them at once."""
        for process in self.processes:
            process.kill()

    def end(self) -> None:
        """Close the pipes, which is a sign to end, and see that they do."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        until = time.monotonic() + GRACE
        for process in self.processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._holds:
            THREADS.let_go()
            self._holds = False


def _started(orders: Orders, threads: int) -> subprocess.Popen[bytes]:
    """The process of a rank, in a session of its own, where a Ctrl-C for this one does not reach it."""
    source = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    if orders.device == "cpu":
        environment["OMP_NUM_THREADS"] = str(_shared(threads, orders.ranks))
    if sys.platform in LOOPBACK:
        environment.setdefault(INTERFACE, LOOPBACK[sys.platform])
    return subprocess.Popen(
        [sys.executable, "-m", "unspool.runtime.parallel.follower", orders.written()],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )


def _shared(threads: int, ranks: int) -> int:
    """The threads of one rank, where all share a CPU."""
    return max(1, threads // ranks)
