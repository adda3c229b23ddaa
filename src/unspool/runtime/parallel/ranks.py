"""A network on several ranks: rank 0 decodes as ever, and every forward is done by all of them at once.

Rank 0 runs methods, engine and server, and owns the book of slots. Before each forward it sends the batch (tokens,
places, slots, trees) to the other ranks, which hold other heads of the same texts in slots of the same numbers. They
decide nothing, so that every method works on ranks, and no rank can take another way than rank 0.

The other ranks are started here as processes of their own, or by torchrun, where they may be on other machines.
Processes are started by command and not by torch.multiprocessing, which would run the user's script again in each.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist

from ...core.errors import BadRequest, RankLost
from ...models.shape import Shape
from ...models.share import RankShare, refuse
from ...models.weights import Checkpoint
from ..cache.checkpoint_pool import CheckpointPool, RecurrentPool
from ..cache.kv_pool import KVPool
from ..network.network import Batch, NetworkOutputs
from .follower import Orders, follow
from .followers import GRACE, Followers
from .sharded import Sharded
from .team import SlotDrop, SlotMove, Team, Work, device_of, meet, perform, portable


class ParallelNetwork:
    """A network whose shares are computed by several processes; this one is rank 0."""

    def __init__(self, shape: Shape, lead: RankLeader) -> None:
        self._lead, shard = lead, lead.shard
        self.shape, self.vocab, self.context, self.layers = shape, shard.vocab, shard.context, shard.layers
        self.slots: KVPool = _pool(shard.slots, lead.do)
        self.close = weakref.finalize(self, lead.end)

    @property
    def followers(self) -> list[int]:
        """The processes of the other ranks, where they were started here."""
        return [process.pid for process in self._lead.followers.processes]

    def forward(self, batch: Batch) -> NetworkOutputs:
        self._lead.shard.check(batch)
        outputs = self._lead.do(portable(batch))
        assert outputs is not None
        return outputs


class ParallelPool(KVPool):
    """The book of slots for all ranks; what is in them is with each rank's shard."""

    def __init__(self, room: int, do: Callable[[Work], NetworkOutputs | None]) -> None:
        super().__init__(room)
        self._do = do

    def move(self, old: Sequence[int], new: Sequence[int]) -> None:
        self._do(SlotMove(list(old), list(new)))


class ParallelRecurrentPool(RecurrentPool):
    """The same where recurrent layers leave states behind slots: all ranks let go of the same ones at the same time.

    Which of them are kept follows from the order of forwards, moves and drops, so every rank keeps those of rank 0.
    """

    def __init__(self, room: int, checkpoints: CheckpointPool, do: Callable[[Work], NetworkOutputs | None]) -> None:
        super().__init__(room, checkpoints)
        self._do = do

    def move(self, old: Sequence[int], new: Sequence[int]) -> None:
        self._do(SlotMove(list(old), list(new)))

    def drop(self, slots: Sequence[int]) -> None:
        KVPool.drop(self, slots)
        free = [slot for slot in slots if not self._users[slot]]
        if any(slot in self.checkpoints for slot in free):
            with suppress(RankLost):  # then its states are lost too, and the next forward says so
                self._do(SlotDrop(free))


def _pool(own: KVPool, do: Callable[[Work], NetworkOutputs | None]) -> KVPool:
    if isinstance(own, RecurrentPool):
        return ParallelRecurrentPool(own.room, own.checkpoints, do)
    return ParallelPool(own.room, do)


class RankLeader:
    """What rank 0 does with the others: work, in one order for all, and an end."""

    def __init__(self, shard: Sharded, team: Team, followers: Followers) -> None:
        self.shard, self.team, self.followers = shard, team, followers
        self._lock = threading.Lock()
        self._over: str | None = None

    def do(self, work: Work) -> NetworkOutputs | None:
        """Do some work on all ranks; if it breaks off anywhere they are out of step, and that is the end of them."""
        with self._lock, undisturbed():
            if self._over is not None:
                raise RankLost(f"{self._over} Load the model again.")
            try:
                self.team.tell(work)
                return perform(self.shard, work)
            except BaseException as error:
                lost = self.followers.lost(GRACE if isinstance(error, RuntimeError) else 0)
                why = lost or f"{type(error).__name__}: {error}".removesuffix(".")
                self._over = f"The ranks of this model have ended: {why}."
                self._leave()
                if lost is None and not isinstance(error, RuntimeError):
                    raise
                raise RankLost(f"{self._over} Load the model again.") from error

    def end(self) -> None:
        """End all other ranks."""
        if self._lock.acquire(timeout=GRACE):
            self._lock.release()
        else:
            self.followers.kill()  # a thread is in the middle of a forward, which fails without them
        with self._lock:
            if self._over is not None:
                return
            self._over = "The ranks of this model have ended: they were closed."
            try:
                self.team.tell(None)
            except RuntimeError:
                self.followers.kill()
            self._leave()

    def _leave(self) -> None:
        self.followers.end()
        dist.destroy_process_group()


def ranked(
    file: Path | str, checkpoint: Checkpoint, dtype: torch.dtype, device: str, room: int | None, ranks: int
) -> ParallelNetwork:
    """Share a model among ranks; under torchrun this returns on rank 0 alone, and the others end with it."""
    refuse(checkpoint.shape, ranks)
    kind = torch.device(device).type
    if kind not in ("cpu", "cuda"):
        raise BadRequest(f"ranks={ranks} on {device!r}: ranks run on the CPU or on one NVIDIA GPU each.")
    if dist.is_initialized():
        gc.collect()  # a team that nobody uses any more ends with its network
    if dist.is_initialized():
        raise BadRequest(
            "torch.distributed is in use in this process, by another model on ranks or by the program itself, and "
            "torch allows one such group; end that first, or load this model with ranks=1."
        )
    if dist.is_torchelastic_launched():
        return _joined(checkpoint, dtype, kind, room, ranks)
    if kind == "cuda" and torch.cuda.device_count() < ranks:
        raise BadRequest(f"ranks={ranks} need a GPU each, but this machine has {torch.cuda.device_count()}.")
    folder = Path(tempfile.mkdtemp(prefix="unspool-ranks-"))
    name = str(dtype).removeprefix("torch.")
    orders = [Orders(str(file), name, kind, room, rank, ranks, str(folder)) for rank in range(1, ranks)]
    followers = Followers(orders)
    try:
        followers.wait(orders)
        team = meet(RankShare(0, ranks), device_of(kind, 0), folder)
        return _led(team, checkpoint, dtype, device_of(kind, 0), room, followers)
    except BaseException:
        followers.kill()
        followers.end()
        if dist.is_initialized():
            dist.destroy_process_group()
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _joined(checkpoint: Checkpoint, dtype: torch.dtype, kind: str, room: int | None, ranks: int) -> ParallelNetwork:
    """This rank of those that torchrun has started."""
    rank, started = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if started != ranks:
        raise BadRequest(f"ranks={ranks}, but torchrun has started {started} processes; give both the same number.")
    device = device_of(kind, int(os.environ["LOCAL_RANK"]))
    team = meet(RankShare(rank, ranks), device, None)
    if rank == 0:
        return _led(team, checkpoint, dtype, device, room, Followers())
    follow(team, Sharded.of(checkpoint, team.mesh, dtype, device, room))
    dist.destroy_process_group()
    sys.exit(0)


def _led(
    team: Team, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, room: int | None, followers: Followers
) -> ParallelNetwork:
    shard = Sharded.of(checkpoint, team.mesh, dtype, device, room)
    try:
        team.gather()
    except RuntimeError as error:
        lost = followers.lost(GRACE) or str(error)
        raise RankLost(f"The ranks of this model could not be loaded: {lost}.") from error
    return ParallelNetwork(checkpoint.shape, RankLeader(shard, team, followers))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait until the end of a forward: broken off in the middle it would leave the ranks out of step."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])
