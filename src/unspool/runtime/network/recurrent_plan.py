"""How the new tokens of a forward go through layers that carry a state from token to token.

Every token goes on from the state after the token it follows. New tokens are cut into runs: chains whose last token
alone leaves a checkpoint. A run starts at a checkpoint, so that runs of different branches and texts are scanned side
by side; a drafted node that may be rolled back to is the end of its run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..cache.checkpoint_pool import SCRATCH, CheckpointPool, RecurrentPool, usual_states
from .network import Row

BLOCK = 256  # tokens between checkpoints of a long text, from which others that begin like it can start


class NewTokens(NamedTuple):
    """The new tokens of one text: their slots, their places, the slots that they follow; drafts behind the `owed`."""

    slots: Sequence[int]
    places: Sequence[int]
    behind: Sequence[int]
    owed: int


@dataclass(frozen=True)
class Runs:
    """Runs that are scanned side by side: none of them starts where another one ends."""

    tokens: Tensor  # int64 [runs, longest], the numbers of their tokens in the batch
    real: Tensor | None  # bool [runs, longest]: False where a shorter run was filled up; None if none was
    start: Tensor  # int64 [runs], the checkpoint from which each goes on
    end: Tensor  # int64 [runs], the one that it leaves


@dataclass(frozen=True)
class RecurrentPlan:
    """The runs of some tokens of a batch, in an order in which every one starts from what an earlier one has left.

    Numbers of tokens count from the first of `tokens`. `before[t]` is the token that token t follows, or ~c where it
    goes on from checkpoint c; `kept` are the tokens that leave a checkpoint, and `ends` their numbers.
    """

    checkpoints: CheckpointPool
    tokens: slice
    groups: list[Runs]
    before: list[int]
    kept: list[int]
    ends: Tensor
    _windows: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def windows(self, size: int) -> tuple[Tensor, Tensor]:
        """What a convolution over the last `size` tokens reads: checkpoints [c], and numbers [tokens, size].

        The numbers count the size − 1 inputs that each of these checkpoints holds, and then those of the batch.
        """
        if size not in self._windows:
            starts = {~above: number for number, above in enumerate(dict.fromkeys(b for b in self.before if b < 0))}
            past, rows = size - 1, list[list[int]]()
            for token, above in enumerate(self.before):
                upper = rows[above][1:] if above >= 0 else range(starts[~above] * past, starts[~above] * past + past)
                rows.append([*upper, len(starts) * past + token])
            device = self.ends.device
            self._windows[size] = torch.tensor(list(starts), device=device), torch.tensor(rows, device=device)
        return self._windows[size]


@dataclass(frozen=True)
class RecurrentPlanner:
    """Plans runs, and takes checkpoints for them."""

    checkpoints: CheckpointPool
    device: torch.device

    def pool(self, room: int) -> RecurrentPool:
        """A pool of slots that carry these checkpoints."""
        return RecurrentPool(room, self.checkpoints)

    def plan(self, rows: Sequence[Row]) -> list[RecurrentPlan]:
        """Plan a forward of these rows: what follows one behind the other, all tokens at once if it can be."""
        return self._plans(*self.marked([_new_tokens(row) for row in rows]))

    def marked(self, texts: Sequence[NewTokens]) -> tuple[list[int], dict[int, int]]:
        """Take checkpoints for the new tokens of a forward, counted through all texts.

        What each follows, another one or ~c where it goes on from checkpoint c; and by token, the numbers of the
        checkpoints that are left.
        """
        slots, behind = list[int](), list[int]()
        passing, lasting = list[int](), list[int]()
        for text in texts:
            slots += text.slots
            behind += text.behind
            owed = text.owed
            for j, slot in enumerate(text.slots):
                ends_block = text.places[j] % BLOCK == BLOCK - 1
                if ends_block or (owed > 1 and owed - 2 <= j < owed):
                    lasting.append(slot)
                elif j >= owed - 1:
                    passing.append(slot)
        of = {slot: token for token, slot in enumerate(slots)}
        self.checkpoints.take((slot for slot in behind if slot not in of), passing, lasting)
        before = [of[slot] if slot in of else ~self.checkpoints.number(slot) for slot in behind]
        kept = sorted(of[slot] for slot in (*passing, *lasting))
        return before, {token: self.checkpoints.number(slots[token]) for token in kept}

    def _plans(self, before: list[int], numbers: dict[int, int]) -> list[RecurrentPlan]:
        ends, groups = torch.tensor(list(numbers.values()), device=self.device), list(self._groups(before, numbers))
        return [RecurrentPlan(self.checkpoints, slice(0, len(before)), groups, before, list(numbers), ends)]

    def _groups(self, before: list[int], numbers: dict[int, int]) -> Iterator[Runs]:
        runs: dict[int, tuple[int, list[int]]] = {}  # by its last token so far, a run's level and tokens
        levels: dict[int, int] = {}  # by checkpoint, the level of the run that leaves it
        groups: dict[tuple[int, int], list[list[int]]] = {}  # by level and length, up to a power of two
        for token, above in enumerate(before):
            fresh: tuple[int, list[int]] = (0 if above < 0 else levels.get(above, 0) + 1, [])
            level, tokens = runs.pop(above, fresh)
            tokens.append(token)
            if token in numbers:
                levels[token] = level
                groups.setdefault((level, (len(tokens) - 1).bit_length()), []).append(tokens)
            else:
                runs[token] = level, tokens
        for _, group in sorted(groups.items()):
            yield self._runs(group, before, numbers)

    def _runs(self, runs: list[list[int]], before: list[int], numbers: dict[int, int]) -> Runs:
        above = [before[run[0]] for run in runs]
        start = torch.tensor([~token if token < 0 else numbers[token] for token in above], device=self.device)
        end = torch.tensor([numbers[run[-1]] for run in runs], device=self.device)
        lengths = torch.tensor([len(run) for run in runs])
        longest = int(lengths.max())
        tokens = torch.tensor([run + run[-1:] * (longest - len(run)) for run in runs], device=self.device)
        real = torch.arange(longest) < lengths[:, None]
        return Runs(tokens, None if bool(real.all()) else real.to(self.device), start, end)


@dataclass(frozen=True)
class PerTokenRecurrentPlanner(RecurrentPlanner):
    """Every token by itself, so that its numbers do not depend on what is scanned beside it."""

    def _plans(self, before: list[int], numbers: dict[int, int]) -> list[RecurrentPlan]:
        plans = list[RecurrentPlan]()
        for token, above in enumerate(before):
            # What nobody keeps is read from where it is written: its one follower is the next token.
            start = ~above if above < 0 else numbers.get(above, SCRATCH)
            end = {0: numbers.get(token, SCRATCH)}
            runs, ends = self._runs([[0]], [~start], end), torch.tensor([end[0]], device=self.device)
            plans.append(RecurrentPlan(self.checkpoints, slice(token, token + 1), [runs], [~start], [0], ends))
        return plans


def _new_tokens(row: Row) -> NewTokens:
    past = len(row.slots) - row.count
    return NewTokens(row.slots[past:], row.places[past:], row.behind or _behind(row), row.count - _drafted(row))


def _drafted(row: Row) -> int:
    """How many of a row's tokens are drafted; a row that does not say what follows what may have any tree."""
    return row.drafted if row.behind or row.hidden_from is None else row.count


def _behind(row: Row) -> list[int]:
    """The slot that each token of a row follows, told by what it sees."""
    past = len(row.slots) - row.count
    if row.hidden_from is None:
        return [row.slots[key - 1] if key else -1 for key in range(past, len(row.slots))]
    found, keys = list[int](), list(zip(row.places, row.slots, strict=True))
    for own, hidden in enumerate(row.hidden_from.tolist(), past):
        above = [key for key, no in zip(keys, hidden, strict=True) if not no and key[0] < row.places[own]]
        found.append(max(above)[1] if above else -1)
    return found


def planner(size: int, room: int, device: torch.device, alone: bool) -> RecurrentPlanner:
    """A planner with a pool of checkpoints of `size` bytes for a cache of `room` tokens; `alone` if one by one."""
    kind = PerTokenRecurrentPlanner if alone else RecurrentPlanner
    return kind(CheckpointPool(usual_states(size, room)), device)
