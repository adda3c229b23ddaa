"""Greedy texts under masks, written without them: the host checks each token while the next one is computed.

The best token is the best of those that may follow wherever it may follow itself, and that is most of the time. To ask
whether one token may follow costs microseconds, to find out all that may costs up to a millisecond. So:

1. A turn picks the best token of every row and goes on from it, and notes the few best behind it.
2. While the next turn runs, the host reads them and asks each text's mask whether the token may follow.
3. Where it may not, the first of the others that may is the one which a mask would have left; the row goes back and on
   from that, and what the running turn finds for it is void.
4. Where none of these may, the row goes back once more, and the next turn applies its mask.

A text is the one that masks would have made, and nobody waits for a mask but rows that need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...core.warp.mask import Mask
from ...core.warp.plan import mask_of
from ...core.warp.warp import Prefix
from .footprint import step_up
from .graph_bucket import Bucket
from .warp_stage import Shaping

LEAST = 4  # turns of one go: a text whose first token needs its mask has it in the third


@dataclass
class CheckedRow:
    """A text under a mask, as far as its tokens are known to stand; each with the turn that computed the one before."""

    mask: Mask
    state: Any
    want: int
    last: int  # the token that it goes on from
    masked: bool  # its mask is applied in the next turn
    tokens: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    void: bool = False  # what the running turn finds for it goes on from a token that has fallen
    fault: int = 0  # what was picked where nothing could be: it ends there

    @staticmethod
    def of(prefix: Prefix, want: int) -> CheckedRow:
        """A row that begins; nothing a model says first of all is likely to be what a form begins with."""
        mask, state = mask_of(prefix)
        return CheckedRow(mask, state, want, prefix.tokens[prefix.length - 1], len(prefix) == prefix.prompt)

    @property
    def live(self) -> bool:
        """Whether more of it is wanted."""
        return not self.fault and len(self.tokens) < self.want and not self.mask.over(self.state)


class CheckedTurns:
    """Turns of a bucket in which some rows are checked; the others' tokens are what the bucket has written.

    `free` and `masked` are the kernels of a turn without masks and of one with some.
    """

    def __init__(self, bucket: Bucket, free: Shaping, masked: Shaping, rows: Mapping[int, CheckedRow]) -> None:
        self._bucket, self._free, self._masked, self._rows = bucket, free, masked, rows
        octets = 4 * -(-bucket.network.vocab // 32)
        self._bits = torch.empty(bucket.size.rows, octets, dtype=torch.uint8)  # masks of rows that were asked for

    def run(self, turns: int, others: Sequence[int]) -> int:
        """Run at most so many turns, of which `others` want these; how many there were.

        It ends early where so many texts have ended that half as many rows would do.
        """
        bucket, notes = self._bucket, self._bucket.notes
        bucket.send((), self._free, self._masked)
        ran = 0
        for turn in range(turns):
            asked = [number for number, row in self._rows.items() if row.masked]
            bucket.turn(self._masked if asked else self._free, partial(self._fill, asked, turn == 0))
            for number in asked:
                self._rows[number].masked = False
            amended = self._check(notes.read(), turn - 1) if turn else {}
            notes.send(turn)
            ran = turn + 1
            live = sum(row.live for row in self._rows.values()) + sum(want > ran for want in others)
            if live == 0 or (ran >= LEAST and 2 * step_up(live, 1) <= bucket.size.rows):
                break
            if amended and ran < turns:
                back, tokens = [0] * bucket.size.rows, [0] * bucket.size.rows
                for number, (far, token) in amended.items():
                    back[number], tokens[number] = far, token
                notes.amend(back, tokens)
        self._check(notes.read(), ran - 1)
        return ran

    def _check(self, ranks: list[list[int]], turn: int) -> dict[int, tuple[int, int]]:
        """Take what stands of a turn; by row how many places it must go back for what does not, and the token there."""
        amended: dict[int, tuple[int, int]] = {}
        for kind, numbers in self._checked(ranks).items():
            rows = [self._rows[number] for number in numbers]
            asked, ranked = [(row.mask, row.state) for row in rows], [ranks[number][1:] for number in numbers]
            found = kind.accept_all(asked, ranked, numbers, self._bits)
            for number, row, (token, state) in zip(numbers, rows, found, strict=True):
                if token < 0:
                    row.masked = row.void = True
                    amended[number] = 2, row.tokens[-1] if row.tokens else row.last
                    continue
                row.tokens.append(token)
                row.turns.append(turn)
                row.state = state
                if token != ranks[number][0]:
                    row.void = True
                    amended[number] = 1, token
        return amended

    def _checked(self, ranks: list[list[int]]) -> dict[type[Mask], list[int]]:
        """Whose tokens are to be checked, by the kind of their mask; those that are void, or none, are passed over."""
        kinds: dict[type[Mask], list[int]] = {}
        for number, row in self._rows.items():
            if row.void:
                row.void = False
            elif row.live:
                row.fault = min(ranks[number][0], 0)
                if not row.fault:
                    kinds.setdefault(type(row.mask), []).append(number)
        return kinds

    def _fill(self, numbers: Sequence[int], first: bool, out: Tensor) -> None:
        """Put the masks of these rows into a host's bytes; of all others everything may follow."""
        out.fill_(255)
        if not first:  # they were asked for when nothing else could follow
            for number in numbers:
                out[number] = self._bits[number]
            return
        kinds: dict[type[Mask], list[int]] = {}
        for number in numbers:
            kinds.setdefault(type(self._rows[number].mask), []).append(number)
        for kind, alike in kinds.items():
            kind.fill([(self._rows[number].mask, self._rows[number].state) for number in alike], alike, out)
