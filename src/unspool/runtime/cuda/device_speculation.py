"""A model on a device that drafts for itself when told to write on, wherever that is faster than not to."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from ...core.asks import Write, Written
from ...core.chance import Philox
from ...core.errors import BadScores, OutOfRoom
from ...core.warp.temperature import warmth
from ..cache.cached_model import SlottedSession
from ..cache.sequence import Leaf
from ..engine.contracts import Asked
from .cuda_graph_model import BROKEN, broken
from .device_drafting import Drawing
from .footprint import LANES, step_up
from .fused import Fused
from .graph_bucket import Bucket, Kind, Size
from .speculation_gate import Pace
from .speculative_step import MOST, ROUNDS, Leap, Memory, Run

BATCH = 64  # tokens of a leap, of all rows together: from there on they cost more than they bring
NARROW, WIDE = 4, 64  # tokens of one row
MANY = 16  # rows that leap together at most: a fuller forward has no room for drafts
TRIAL = 2  # rounds of a leap that is not known to pay
LEAST = 8  # tokens of a vocabulary


class Leaping(Drawing):
    """Graphed, and what is written with drafts of its own comes in as many forwards as it takes.

    A leap drafts a tree for every row from what its text repeats and from the laws that were met in it, verifies it by
    the walk and goes on, a few times before the host looks. The text is that of plain decoding whatever was
    drafted; the pace decides whether to leap at all.
    """

    def __init__(self, network: Fused, shelf: int = 0, lanes: int = LANES) -> None:
        super().__init__(network, shelf, lanes)
        self.memory, self.pace = Memory(self.lanes.length, network.device), Pace()
        self.leaps = network.vocab >= LEAST  # a law is remembered by so many

    def write(self, asked: Sequence[Asked], writes: Sequence[Write], turns: int) -> list[Written | BadScores] | None:
        """Write on without leaving the device, in leaps where all want them and they pay."""
        leaves = [leaf for ask in asked if isinstance(ask.session, SlottedSession) for leaf in ask.session.leaves]
        ahead, size = min(write.ahead for write in writes), step_up(len(asked), 1)
        wide = min(step_up(ahead + 1, 1), WIDE, max(NARROW, BATCH // size))
        ready = all(len(leaf.tokens) - len(leaf.slots) <= 1 for leaf in leaves)
        if not ahead or not ready or not self.leaps or wide < NARROW or size > MANY or len(leaves) > len(asked):
            return super().write(asked, writes, turns)
        known, began = len(self._buckets), perf_counter()
        leapt = self.pace.leaps(leaves)
        replies = self._leap(leaves, writes, turns, wide) if leapt else None
        if replies is None:
            leapt, replies = False, super().write(asked, writes, turns)
        if replies is None:
            return None
        rounds = 1
        for leaf, reply in zip(leaves, replies, strict=True):
            if isinstance(reply, Written):
                rounds = max(rounds, len(reply.leaps) or len(reply.tokens))
                if leapt:
                    self.pace.leapt(leaf, len(reply.leaps), len(reply.tokens))
                else:
                    self.pace.stepped(leaf, len(reply.tokens))
        if known == len(self._buckets):  # nothing was captured on the way
            self.pace.took(len(leaves), leapt, (perf_counter() - began) / rounds)
        return replies

    def _leap(
        self, leaves: list[Leaf], writes: Sequence[Write], turns: int, wide: int
    ) -> list[Written | BadScores] | None:
        """Some rounds, or None where they cannot be made."""
        heats = [heat for write in writes if (heat := warmth(write.prefix.warp)) is not None]
        chances = [write.chance for write in writes if isinstance(write.chance, Philox)]
        longest = max(len(leaf.tokens) for leaf in leaves)
        room = self.fused.context - longest
        if min(len(heats), len(chances)) < len(writes) or any(leaf.drafts for leaf in leaves) or room < 1:
            return None
        self._read_ahead(leaves)
        wants = [min(write.most, MOST, room) for write in writes]
        each = max(wants) - 1 + 2 * wide  # what may be kept, and a tree
        try:
            taken = self._taken(each * len(leaves), None)
        except OutOfRoom:
            return None
        try:
            bucket = self.bucket(Kind.LEAP, len(leaves), wide, longest + MOST + wide)
            assert isinstance(bucket, Leap)
            own = [taken[i : i + each] for i in range(0, len(taken), each)]
            bucket.set_out(leaves, wants, own, self.lanes.lines(leaves))
            bucket.warm(heats, chances)
            bucket.run(min(ROUNDS if self.pace.sure(leaves) else TRIAL, turns))
            runs = bucket.told(len(leaves))
        except BaseException:
            self.slots.drop(taken)
            raise
        return [self._settled(*each) for each in zip(leaves, runs, own, strict=True)]

    def _settled(self, leaf: Leaf, run: Run, own: list[int]) -> Written | BadScores:
        if BROKEN in run.tokens:
            self.slots.drop(own)
            return broken()
        kept = set(run.slots)
        self.slots.drop([slot for slot in own if slot not in kept])
        leaf.tokens += run.tokens
        leaf.slots += run.slots
        leaf.law, leaf.hidden = None, {}
        self.lanes.kept(leaf, len(leaf.slots))
        self.memory.wrote(leaf)
        return Written(tuple(run.tokens), rows=run.computed, leaps=tuple(run.leaps))

    def _made(self, size: Size) -> Bucket:
        return Leap(size, self.fused, self.lanes, self.memory) if size.kind is Kind.LEAP else super()._made(size)
