"""Every token drawn anew at every look, until none changes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.canvas import Canvas, Status
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import StatefulRule
from .confident import Confident
from .unmask_trials import Brief


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Brief(lambda size: Denoise(Confident(0.0), size, remask=Resample(1)))],
    paper="2401.17181",
    systems=("AR2Diff (parallel resampling)",),
)
@dataclass(frozen=True)
class Resample(StatefulRule):
    """Draw every token of the window anew, given all the others, up to `looks` times or until none changes.

    The canvas has no holes after the first look. The paper begins with random tokens; here they are the first look's.
    That it resamples the whole canvas at once is from reviews of the paper, the number of looks is not confirmed.
    Under a constraint a place is drawn again if its token cannot stand, and after some draws left as it was.

    Claim: HEURISTIC; all places at once is not Gibbs sampling. It loses where neighbours depend on each other: both
    change to fit what the other was. A low temperature makes it settle. Cost: one look per round, at every place.
    """

    looks: int = 10

    def __post_init__(self) -> None:
        expect(whole(self.looks, 0), "resample:looks", self.looks, "a whole number of looks from 0 on")

    def asks(self, canvas: Canvas) -> Collection[int]:
        return _Resampling(self).asks(canvas)

    def begin(self) -> _Resampling:
        return _Resampling(self)


@dataclass
class _Resampling:
    """How often this block was drawn anew, and what the last look was at."""

    rule: Resample
    window: tuple[int, int] = (0, 0)
    looks: int = 0
    seen: tuple[int, ...] = ()

    def asks(self, canvas: Canvas) -> Collection[int]:
        """Every draft of the window, while looks are left and the last has changed something."""
        if canvas.window != self.window:
            self.window, self.looks, self.seen = canvas.window, 0, ()
        if self.looks >= self.rule.looks or canvas.tokens == self.seen:
            return ()
        return [i for i in range(*canvas.window) if canvas.status[i] == Status.DRAFT]

    def __call__(self, state: DenoiseState, canvas: Canvas) -> Canvas:
        old = [i for i in state.raw if state.canvas.status[i] == Status.DRAFT]
        new = {i: token for i in old if (token := state.draw(i).token) != canvas.tokens[i]}
        self.looks += not state.holes
        self.seen = () if state.holes else state.canvas.tokens
        return canvas.fill(new, Status.DRAFT) if new else canvas
