"""What is redundant need not be decoded: guesses that are sure together, that neighbours share, that do not change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ...core.canvas import Confidence
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks, StatefulRule
from .confident import Confident
from .hierarchy import runs


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Redundant(0.8, 0.6, 2, 1, 0.5, 2), 3, FixedBlocks(32))],
    paper="2604.18995",
    systems=("R²-dLLM (decoding rules)",),
)
@dataclass(frozen=True)
class Redundant(StatefulRule):
    """Fill as `confident` does, and then by the same look what is sure together, shared by neighbours, or steady.

    Together: in every `span` places of the block of which at most `known` are filled by then, all holes if their mean p
    is at least `cluster`. Shared: in every run of two or more holes with the same best guess, the surest if it has
    p > cluster; where a token stands is then all that was open. Steady: every hole whose best guess has been the same
    for `streak` looks at the block, if p ≥ `steady`.

    Claim: HEURISTIC; with cluster > 1 and a streak longer than the block it is `confident`. It loses where
    neighbours are sure of tokens that do not fit together. Cost: one look per group.
    """

    threshold: float = 0.9
    cluster: float = 0.8
    span: int = 3
    known: int = 1
    steady: float = 0.8
    streak: int = 3

    def __post_init__(self) -> None:
        expect(real(self.threshold), "redundant:threshold", self.threshold, "a probability; usual is 0.9")
        expect(real(self.cluster), "redundant:cluster", self.cluster, "a probability; usual is 0.8")
        expect(whole(self.span, 1), "redundant:span", self.span, "a whole number of places from 1 on; usual is 3")
        expect(whole(self.known, 0), "redundant:known", self.known, "a whole number of places from 0 on; usual is 1")
        expect(real(self.steady), "redundant:steady", self.steady, "a probability; usual is 0.8")
        expect(whole(self.streak, 1), "redundant:streak", self.streak, "a whole number of looks from 1 on; usual is 3")

    def begin(self) -> GuessStreaks:
        return GuessStreaks(self)


@dataclass
class GuessStreaks:
    """The rule with the best guesses of the last look, and for how many looks each has been the same."""

    rule: Redundant
    streaks: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __call__(self, state: DenoiseState) -> Collection[int]:
        rule, peaks = self.rule, {i: state.peak(i) for i in state.holes}
        self._watch(peaks)
        chosen = set(Confident(rule.threshold)(state))
        chosen |= together(peaks, chosen, state.canvas.window, rule)
        chosen |= shared({i: peak for i, peak in peaks.items() if i not in chosen}, rule.cluster)
        steady = (i for i, (_, n) in self.streaks.items() if n >= rule.streak and peaks[i].p >= rule.steady)
        return chosen.union(steady)

    def _watch(self, peaks: Mapping[int, Confidence]) -> None:
        last = self.streaks
        self.streaks = {
            i: (peak.token, last[i][1] + 1 if i in last and last[i][0] == peak.token else 1)
            for i, peak in peaks.items()
        }


def together(
    peaks: Mapping[int, Confidence], filled: Collection[int], window: tuple[int, int], rule: Redundant
) -> set[int]:
    """The holes of every span that are sure on the mean, if not too much of it is filled; by certainties of before."""
    low, high = window
    found: set[int] = set()
    for start in range(low, high - rule.span + 1):
        span = range(start, start + rule.span)
        holes = [i for i in span if i in peaks and i not in filled]
        sure = sum(peaks[i].p for i in holes)
        if holes and len(span) - len(holes) <= rule.known and sure >= rule.cluster * len(holes):
            found.update(holes)
    return found


def shared(peaks: Mapping[int, Confidence], bar: float) -> set[int]:
    """The surest hole of every run with one and the same best guess, if it is surer than the bar."""
    found: set[int] = set()
    for token in {peak.token for peak in peaks.values()}:
        for run in runs(i for i, peak in peaks.items() if peak.token == token):
            surest = max(run, key=lambda i: peaks[i].p)
            if len(run) > 1 and peaks[surest].p > bar:
                found.add(surest)
    return found
