"""The gate: whether to speculate on a device, by what steps take there and what drafts have brought lately."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import ceil, inf, log2
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..cache.sequence import CachedSequence
from .copy_estimate import BigramCopies
from .footprint import step_up

HOPE = 2.2  # tokens that a speculative step is believed to bring before any text has tried it
CHAIN_HOPE = 3.0  # and one with a trained drafter
PRIOR = 4  # speculative steps of a text that what is believed of it counts as
LATELY = 0.06  # what a speculative step counts at least against those before
USUAL = 0.015  # and in what is believed to come to any text, where texts gain very differently
FORGET = 1000  # tokens after which a text that steps has forgotten most of what drafts brought
LONG = 8000  # and after which what they brought other texts is forgotten
GREEDY, DRAWN, MASKED = "greedy", "drawn", "masked"  # kinds of texts: drafts bring each something else
TIMINGS = 3  # that make a time known; the first ones have more to do
WIDE = 32  # tokens of a step that gains are told of
LONGER = 1.1  # plain steps' time that a token of any text may take, however much the others gain


class Way(Enum):
    """What speculative steps draft from."""

    RECALL = "copies and remembered laws"
    CHAIN = "those, beside what a trained drafter reads"


FIRST = {Way.RECALL: HOPE, Way.CHAIN: CHAIN_HOPE}


class Drafting(NamedTuple):
    """How a speculative step drafts: in which way, and how many tokens a row of it has."""

    way: Way
    tokens: int

    @property
    def share(self) -> float:
        """What such trees add to a text, over what those of WIDE tokens add; those of a trained drafter have one size.

        The likeliest tokens come first, so that each doubling adds about as much as the one before: 0.24 tokens a step
        from 8 to 64 tokens on prompts of Spec-Bench (bench/rounds.py).
        """
        return 1.0 if self.way is Way.CHAIN else max(log2(self.tokens) - 0.7, 0.3) / (log2(WIDE) - 0.7)


RECALL = Drafting(Way.RECALL, WIDE)


class SpeculationGate:
    """Seconds of a plain and of a speculative step by rows, the least of late, and the tokens per step of every text.

    Speculate while t(speculative) · Σ over rows of 1 / tokens per step is at most rows · t(plain): what a token of each
    text takes, on the mean over texts. Tokens per second of all texts together would be more where some gain much and
    others nothing, but those others would wait for it, and with them whoever wants all of them; so no text may wait
    LONGER for a token than by plain steps either. Of all ways that which takes least is taken, and without a trained
    drafter trees of the width that takes least: what they bring is told as of WIDE tokens, so that what one width
    brings says what another would. While a text is written plainly or in another way, what it knows of its drafts goes
    back to what is believed of any text, so that they are tried again now and then; and if it begins to repeat itself,
    to what copies would have brought. What is believed of a text at first is what the last ones of its kind have
    brought: greedy ones, drawn ones, those with a mask. What greedy texts gain, or any with a trained drafter, differs
    much from text to text, so that belief moves slowly there; and what is not tried is forgotten in the end: after a
    row of texts that gained little come others.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[int, Drafting | None], list[float]] = {}  # by rows
        self._gains: WeakKeyDictionary[CachedSequence, dict[Way, float]] = WeakKeyDictionary()
        self._speculated: WeakKeyDictionary[CachedSequence, Way | None] = WeakKeyDictionary()
        self._rounds: WeakKeyDictionary[CachedSequence, dict[Way, int]] = WeakKeyDictionary()
        self._kinds: WeakKeyDictionary[CachedSequence, str] = WeakKeyDictionary()
        self._hopes = {(way, kind): FIRST[way] for way in Way for kind in (GREEDY, DRAWN, MASKED)}
        self._copies: WeakKeyDictionary[CachedSequence, BigramCopies] = WeakKeyDictionary()

    def draws(self, leaf: CachedSequence, kind: str = DRAWN) -> None:
        """Take note that a text is drawn at some temperature, or written under a mask."""
        self._kinds[leaf] = kind

    def _believed(self, leaf: CachedSequence, way: Way) -> float:
        kind = self._kinds.get(leaf, GREEDY)
        most = self._hopes[Way.CHAIN, kind]  # whose trees have all that the others have
        return min(self._hopes[way, kind], most)

    def _tried(self, leaf: CachedSequence, way: Way) -> float:
        """What a text that was written otherwise goes back to: copies come and go, whatever others have brought."""
        most = self._hopes[Way.CHAIN, self._kinds.get(leaf, GREEDY)]
        return min(HOPE, most) if way is Way.RECALL else self._believed(leaf, way)

    def _known_of(self, leaf: CachedSequence, way: Way) -> float:
        return self._gains.get(leaf, {}).get(way, self._believed(leaf, way))

    def _gain(self, leaf: CachedSequence, chosen: Drafting) -> float:
        return 1 + (self._known_of(leaf, chosen.way) - 1) * chosen.share

    def pays(self, leaves: Sequence[CachedSequence], choices: Sequence[Drafting] = (RECALL,)) -> Drafting | None:
        """By which of these to speculate now, None for plain steps; what was not timed often enough is tried."""
        size = step_up(len(leaves), 1)
        if not self._known(size, None):
            return None
        untried = next((each for each in choices if not self._known(size, each)), None)
        if untried is not None:
            return untried
        plain = min(self._times[size, None])
        waits = [[min(self._times[size, each]) / self._gain(leaf, each) for leaf in leaves] for each in choices]
        borne = [sum(each) if max(each) <= LONGER * plain else inf for each in waits]
        least = min(borne)
        return choices[borne.index(least)] if least <= plain * len(leaves) else None

    def sure(self, leaves: Sequence[CachedSequence], chosen: Drafting = RECALL) -> bool:
        """Whether more than a few rounds are wanted: to time them, or because drafts paid for these texts last time."""
        timed = self._known(step_up(len(leaves), 1), chosen)
        return not timed or all(self._speculated.get(leaf) is chosen.way for leaf in leaves)

    def enough(self, leaves: Sequence[CachedSequence], wants: Sequence[int], chosen: Drafting = RECALL) -> int:
        """How many rounds may bring every text what is wanted of it, by what they have brought."""
        return max(ceil(want / self._gain(leaf, chosen)) for leaf, want in zip(leaves, wants, strict=True))

    def _known(self, size: int, chosen: Drafting | None) -> bool:
        return len(self._times.get((size, chosen), ())) >= TIMINGS

    def took(self, rows: int, chosen: Drafting | None, seconds: float) -> None:
        """Take note of the seconds of one step, plain if nothing was drafted; of the last few the least is true."""
        times = self._times.setdefault((step_up(rows, 1), chosen), [])
        times.append(seconds)
        del times[: -4 * TIMINGS]

    def stepped(self, leaf: CachedSequence, tokens: int, rows: int = 1) -> None:
        """Take note that a text, one of so many side by side, was written on without drafts."""
        self._forget(leaf, tokens, None, rows)
        rounds = self._copies.setdefault(leaf, BigramCopies()).rounds(leaf.tokens, len(leaf.tokens) - tokens)
        for way in Way:
            gain = self._known_of(leaf, way)
            if tokens / rounds > gain:
                self._gains[leaf][way] = gain + (1 - (1 - LATELY) ** rounds) * (tokens / rounds - gain)
        self._speculated[leaf] = None

    def speculated(
        self, leaf: CachedSequence, rounds: int, tokens: int, chosen: Drafting = RECALL, rows: int = 1
    ) -> None:
        """Take note of what speculative steps have brought a text, one of so many side by side."""
        way, kind, before = chosen.way, self._kinds.get(leaf, GREEDY), self._rounds.setdefault(leaf, {})
        self._forget(leaf, tokens, way, rows)
        gain, brought = self._known_of(leaf, way), 1 + (tokens / rounds - 1) / chosen.share
        for _ in range(rounds):
            before[way] = before.get(way, 0) + 1
            gain += max(LATELY, 1 / (PRIOR + before[way])) * (brought - gain)
        self._gains[leaf][way] = gain
        lately = LATELY if way is Way.RECALL and kind != GREEDY else USUAL
        moved = self._hopes[way, kind] + (1 - (1 - lately) ** rounds) * (brought - self._hopes[way, kind])
        self._hopes[way, kind] = min(HOPE, moved) if way is Way.RECALL else moved
        self._speculated[leaf] = way if self._paid(tokens / rounds, chosen, rows) else None

    def _paid(self, brought: float, chosen: Drafting, rows: int) -> bool:
        """Whether so many tokens a step cost a text no more time than they may."""
        size = step_up(rows, 1)
        if not (self._known(size, None) and self._known(size, chosen)):
            return True
        return min(self._times[size, chosen]) <= LONGER * brought * min(self._times[size, None])

    def _forget(self, leaf: CachedSequence, tokens: int, used: Way | None, rows: int) -> None:
        """Let what is known of ways that a text was not written in go back to what they may bring.

        What is believed of any text does so by steps, so that many texts side by side do not forget it the sooner.
        """
        gains = self._gains.setdefault(leaf, {})
        for way in Way:
            if way is not used:
                kind = way, self._kinds.get(leaf, GREEDY)
                self._hopes[kind] += (FIRST[way] - self._hopes[kind]) * min(1.0, tokens / (LONG * rows))
                gain, hope = self._known_of(leaf, way), self._tried(leaf, way)
                gains[way] = gain + (hope - gain) * min(1.0, tokens / FORGET)
