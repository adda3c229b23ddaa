"""Greedy texts under masks, written without them: the host checks each token while the next one is computed.

The best token is the best of those that may follow wherever it may follow itself, and that is most of the time. To ask
whether one token may follow costs microseconds, to find out all that may costs up to a millisecond. So:

1. A turn picks the best token of every row and goes on from it, and notes the few best behind it.
2. While the next turn runs, the host reads them and asks each text's mask whether the token may follow.
3. Where it may not, the first of the others that may is the one which a mask would have left; the row goes back and on
   from that, and what the running turn finds for it is void.
4. Where none of these may, the row goes back once more, and the next turn applies its mask.
5. Where a mask leaves one token only and the host knows it, the next turn goes on from that, whatever was picked.

A text is the one that masks would have made, and nobody waits for a mask but rows that need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from ...core.warp.mask import Mask
from ...core.warp.warp import Prefix
from ...core.warp.warp_plan import mask_of
from .footprint import step_up
from .graph_bucket import Bucket
from .warp_stage import Shaping

HERE, OTHER, BACK = 1, 2, 3  # one more than the places that a row goes back
LEAST = 4  # turns of one go: a text whose first token needs its mask has it in the third


@dataclass
class CheckedRow:
    """A text under a mask, as far as its tokens are known to stand; each with the turn that computed the one before."""

    mask: Mask
    state: Any
    want: int
    last: int  # the token that it goes on from
    masked: bool  # its mask is applied in the next turn
    edited: bool = False  # other warps may forbid what a mask allows
    tokens: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    void: bool = False  # what the running turn finds for it goes on from a token that has fallen
    fault: int = 0  # what was picked where nothing could be: it ends there

    @staticmethod
    def of(prefix: Prefix, want: int, edited: bool) -> CheckedRow:
        """A row that begins; nothing a model says first of all is likely to be what a form begins with."""
        mask, state = mask_of(prefix)
        return CheckedRow(mask, state, want, prefix.tokens[prefix.length - 1], len(prefix) == prefix.prompt, edited)

    @property
    def live(self) -> bool:
        """Whether more of it is wanted."""
        return not self.fault and len(self.tokens) < self.want and not self.mask.over(self.state)

    def take(self, token: int, turn: int, state: Any) -> None:
        """A token stands; `turn` has computed the one before it."""
        self.tokens.append(token)
        self.turns.append(turn)
        self.state = state


class CheckedTurns:
    """Turns of a bucket in which some rows are checked; the others' tokens are what the bucket has written.

    `free` and `masked` are the kernels of a turn without masks and of one with some.
    """

    def __init__(self, bucket: Bucket, free: Shaping, masked: Shaping, rows: Mapping[int, CheckedRow]) -> None:
        self._bucket, self._free, self._masked, self._rows = bucket, free, masked, rows

    def run(self, turns: int, others: Sequence[int]) -> int:
        """Run at most so many turns, of which `others` want these; how many there were.

        It ends early where so many texts have ended that half as many rows would do.
        """
        bucket, notes = self._bucket, self._bucket.notes
        bucket.send((), self._free, self._masked)
        nobody = [0] * bucket.size.rows
        notes.amend(nobody, nobody)  # whatever a go that was broken off has left
        ran = 0
        for turn in range(turns):
            asked = [number for number, row in self._rows.items() if row.masked]
            bucket.turn(self._masked if asked else self._free, partial(self._fill, asked))
            for number in asked:
                self._rows[number].masked = False
            amended = self._check(notes.read(), turn - 1) if turn else {}
            self._foresee(amended, turn)
            notes.send(turn)
            ran = turn + 1
            live = sum(row.live for row in self._rows.values()) + sum(want > ran for want in others)
            if live == 0 or (ran >= LEAST and 2 * step_up(live, 1) <= bucket.size.rows):
                break
            if amended and ran < turns:
                back, tokens = nobody[:], nobody[:]
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
            for number, row, (token, state) in zip(numbers, rows, kind.accept_all(asked, ranked), strict=True):
                if token < 0:
                    row.masked = row.void = True
                    amended[number] = BACK, row.tokens[-1] if row.tokens else row.last
                    continue
                row.take(token, turn, state)
                if token != ranks[number][0]:
                    row.void = True
                    amended[number] = OTHER, token
        return amended

    def _foresee(self, amended: dict[int, tuple[int, int]], turn: int) -> None:
        """Have rows that stand go on from the one token that may follow what `turn` computes, where that is known."""
        for number, row in self._rows.items():
            if number in amended or row.edited or row.masked or not row.live:
                continue
            token = row.mask.only(row.state)
            if token >= 0:
                ((_, state),) = type(row.mask).accept_all([(row.mask, row.state)], [[token]])
                row.take(token, turn, state)
                row.void = True
                amended[number] = HERE, token

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

    def _fill(self, numbers: Sequence[int], out: Tensor) -> None:
        """Put the masks of these rows into a host's bytes; of all others everything may follow."""
        out.numpy().fill(255)  # which wakes no threads
        kinds: dict[type[Mask], list[int]] = {}
        for number in numbers:
            kinds.setdefault(type(self._rows[number].mask), []).append(number)
        for kind, alike in kinds.items():
            kind.fill([(self._rows[number].mask, self._rows[number].state) for number in alike], alike, out)
