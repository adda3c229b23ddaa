"""Which checkpoints the rows of a step start from and leave, where layers are recurrent and a step is a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..cache.forward_request import ForwardRequest, follows
from ..cache.sequence import CachedSequence, DraftNode
from ..network.recurrent_plan import NewTokens, RecurrentPlanner
from .fused import Fused
from .packing import Packed


class Lent(NamedTuple):
    """The checkpoint that a row starts from, and those that it may leave states in."""

    start: int
    own: list[int]


class GraphStates:
    """Takes checkpoints for rows before their bucket is chosen: where storage has to grow, graphs no longer find it."""

    def __init__(self, network: Fused, planner: RecurrentPlanner, forget_graphs: Callable[[], None]) -> None:
        self._network, self._planner, self._forget_graphs = network, planner, forget_graphs
        self.checkpoints = planner.checkpoints

    def follow(
        self, requests: Sequence[ForwardRequest], rows: Sequence[Packed], firsts: Sequence[int], needed: Iterable[int]
    ) -> list[Packed]:
        """These rows, each with what its tokens follow and leave; row i begins with token firsts[i] of its request.

        What stands behind the slots `needed` is not let go.
        """
        texts = list[NewTokens]()
        for request, row, first in zip(requests, rows, firsts, strict=True):
            behind = follows(request)[first : first + len(row.tokens)]
            texts.append(NewTokens(row.slots, row.places, behind, min(len(request.owed) - first, len(row.tokens))))
        with self.checkpoints.holding(needed):
            before, numbers = self._planner.marked(texts)
        self._make_room()
        found, at = list[Packed](), 0
        for row in rows:
            own = range(at, at + len(row.tokens))
            above = [before[token] - at if before[token] >= 0 else before[token] for token in own]
            found.append(row._replace(before=above, into=[numbers.get(token, -1) for token in own]))
            at += len(row.tokens)
        return found

    def lend(self, leaves: Sequence[CachedSequence], each: int) -> list[Lent]:
        """So many checkpoints for every text that writes on, which stand behind none of its slots yet."""
        ends = [leaf.slots[-1] if leaf.slots else -1 for leaf in leaves]
        numbers = self.checkpoints.lend(each * len(leaves), ends)
        self._make_room()
        starts = [self.checkpoints.number(end) for end in ends]
        return [Lent(start, numbers[i * each : (i + 1) * each]) for i, start in enumerate(starts)]

    def take_back(self, lent: Sequence[Lent]) -> None:
        """Take back all of them, of texts that nothing came of."""
        self.checkpoints.give_back([number for row in lent for number in row.own])

    def settle(self, lent: Lent, slot: int, number: int) -> None:
        """Have one of a text's checkpoints stand behind a slot of it, and take the others back."""
        self.checkpoints.give_back([other for other in lent.own if other != number])
        self.checkpoints.attach(slot, number)

    def chains(self, leaves: Sequence[CachedSequence], slots: Sequence[Sequence[int]]) -> list[list[int]]:
        """Take a checkpoint behind each of these new slots of every text; the one it starts from, and then they."""
        ends = [leaf.slots[-1] if leaf.slots else -1 for leaf in leaves]
        self.checkpoints.take(ends, [slot for own in slots for slot in own], [])
        self._make_room()
        number = self.checkpoints.number
        return [[number(end), *map(number, own)] for end, own in zip(ends, slots, strict=True)]

    def _make_room(self) -> None:
        if self._network.lay_out_states():
            self._forget_graphs()


def resume_slots(request: ForwardRequest, done: int) -> list[int]:
    """The slots that the tokens of a request follow, of which the first `done` are computed."""
    drafted = [above.slot for _, above in request.added if isinstance(above, DraftNode)]
    return [*drafted, *(request.slots[done - 1 : done] if done else request.leaf.slots[-1:])]
