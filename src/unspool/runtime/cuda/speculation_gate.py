"""The gate: whether to speculate on a device, by what steps take there and what drafts have brought lately."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary, WeakSet

from ..cache.sequence import CachedSequence
from .copy_estimate import BigramCopies
from .footprint import step_up

HOPE = 2.2  # tokens that a speculative step of a text is believed to bring before it was tried
LATELY = 0.06  # what a speculative step counts against those before
FORGET = 1000  # tokens after which a text that steps has forgotten most of what drafts brought
TIMINGS = 3  # that make a time known; the first ones have more to do


class SpeculationGate:
    """Seconds of a plain and of a speculative step by rows, the least of late, and the tokens per step of every text.

    Speculate while Σ over rows of tokens per step / t(speculative) is at least the rows / t(plain). While a text is
    written plainly, what it knows of its drafts goes back to what is believed of any text, so that they are tried again
    now and then; and if it begins to repeat itself, to what copies would have brought. Of drawn texts that is what the
    last of them have brought: they are much alike, and few of them repeat what was said.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[int, bool], list[float]] = {}
        self._gains: WeakKeyDictionary[CachedSequence, float] = WeakKeyDictionary()
        self._speculated: WeakKeyDictionary[CachedSequence, bool] = WeakKeyDictionary()
        self._drawn: WeakSet[CachedSequence] = WeakSet()
        self._hope = HOPE  # of drawn texts
        self._copies: WeakKeyDictionary[CachedSequence, BigramCopies] = WeakKeyDictionary()

    def draws(self, leaf: CachedSequence) -> None:
        """Take note that a text is drawn, at some temperature."""
        self._drawn.add(leaf)

    def _believed(self, leaf: CachedSequence) -> float:
        return self._hope if leaf in self._drawn else HOPE

    def _gain(self, leaf: CachedSequence) -> float:
        return self._gains.get(leaf, self._believed(leaf))

    def pays(self, leaves: Sequence[CachedSequence]) -> bool:
        """Whether to speculate now; what has not been timed often enough is tried."""
        size = step_up(len(leaves), 1)
        if not self._known(size, drafts=False):
            return False
        if not self._known(size, drafts=True):
            return True
        drafts, step = (min(self._times[size, kind]) for kind in (True, False))
        return sum(map(self._gain, leaves)) * step >= len(leaves) * drafts

    def sure(self, leaves: Sequence[CachedSequence]) -> bool:
        """Whether more than a few rounds are wanted: to time them, or because drafts paid for these texts last time."""
        timed = self._known(step_up(len(leaves), 1), drafts=True)
        return not timed or all(self._speculated.get(leaf, False) for leaf in leaves)

    def _known(self, size: int, drafts: bool) -> bool:
        return len(self._times.get((size, drafts), ())) >= TIMINGS

    def took(self, rows: int, drafts: bool, seconds: float) -> None:
        """Take note of the seconds of one step; of the last few the least is true."""
        times = self._times.setdefault((step_up(rows, 1), drafts), [])
        times.append(seconds)
        del times[: -4 * TIMINGS]

    def stepped(self, leaf: CachedSequence, tokens: int) -> None:
        """Take note that a text was written on without drafts."""
        gain = self._gain(leaf)
        gain += (HOPE - gain) * min(1.0, tokens / FORGET)
        rounds = self._copies.setdefault(leaf, BigramCopies()).rounds(leaf.tokens, len(leaf.tokens) - tokens)
        if tokens / rounds > gain:
            gain += (1 - (1 - LATELY) ** rounds) * (tokens / rounds - gain)
        self._gains[leaf] = gain
        self._speculated[leaf] = False

    def speculated(self, leaf: CachedSequence, rounds: int, tokens: int) -> None:
        """Take note of what speculative steps have brought."""
        gain, share = self._gain(leaf), 1 - (1 - LATELY) ** rounds
        self._gains[leaf] = gain + share * (tokens / rounds - gain)
        if leaf in self._drawn:
            self._hope = min(HOPE, self._hope + share * (tokens / rounds - self._hope))
        self._speculated[leaf] = True
