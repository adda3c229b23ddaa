"""Pace: whether a device had better step or leap, by what each takes there and what leaps have brought lately."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from ..cache.sequence import Leaf
from .copy_estimate import Copies
from .footprint import step_up

HOPE = 2.2  # tokens that a leap of a text is believed to bring before it was tried
LATELY = 0.06  # what a leap counts against those before
FORGET = 1000  # tokens after which a text that steps has forgotten most of what its leaps brought
TIMINGS = 3  # that make a time known; the first ones have more to do


class Pace:
    """The seconds of a step and of a leap of so many rows, the least of late, and the tokens per leap of every text.

    Leap while Σ over rows of tokens per leap / t(leap) is at least the rows / t(step). While a text steps, what it
    knows of its leaps goes back to what is believed of any text, so that they are tried again now and then; and if it
    begins to repeat itself, to what copies would have brought.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[int, bool], list[float]] = {}
        self._gains: WeakKeyDictionary[Leaf, float] = WeakKeyDictionary()
        self._leapt: WeakKeyDictionary[Leaf, bool] = WeakKeyDictionary()
        self._copies: WeakKeyDictionary[Leaf, Copies] = WeakKeyDictionary()

    def leaps(self, leaves: Sequence[Leaf]) -> bool:
        """Whether to leap now; what has not been timed often enough is tried."""
        size = step_up(len(leaves), 1)
        if not self._known(size, leap=False):
            return False
        if not self._known(size, leap=True):
            return True
        leap, step = (min(self._times[size, kind]) for kind in (True, False))
        return sum(self._gains.get(leaf, HOPE) for leaf in leaves) * step >= len(leaves) * leap

    def sure(self, leaves: Sequence[Leaf]) -> bool:
        """Whether more than a few rounds are wanted: to time them, or because these texts leapt last time."""
        return not self._known(step_up(len(leaves), 1), leap=True) or all(self._leapt.get(x, False) for x in leaves)

    def _known(self, size: int, leap: bool) -> bool:
        return len(self._times.get((size, leap), ())) >= TIMINGS

    def took(self, rows: int, leap: bool, seconds: float) -> None:
        """Take note of the seconds of one step or one leap; of the last few the least is true."""
        times = self._times.setdefault((step_up(rows, 1), leap), [])
        times.append(seconds)
        del times[: -4 * TIMINGS]

    def stepped(self, leaf: Leaf, tokens: int) -> None:
        """Take note that a text was written on without drafts."""
        gain = self._gains.get(leaf, HOPE)
        gain += (HOPE - gain) * min(1.0, tokens / FORGET)
        rounds = self._copies.setdefault(leaf, Copies()).rounds(leaf.tokens, len(leaf.tokens) - tokens)
        if tokens / rounds > gain:
            gain += (1 - (1 - LATELY) ** rounds) * (tokens / rounds - gain)
        self._gains[leaf] = gain
        self._leapt[leaf] = False

    def leapt(self, leaf: Leaf, rounds: int, tokens: int) -> None:
        """Take note of what leaps have brought."""
        gain, share = self._gains.get(leaf, HOPE), 1 - (1 - LATELY) ** rounds
        self._gains[leaf] = gain + share * (tokens / rounds - gain)
        self._leapt[leaf] = True
