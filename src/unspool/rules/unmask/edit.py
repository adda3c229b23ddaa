"""Tokens that are replaced where the model has come to prefer another."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.canvas import Canvas, Status
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, level, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks, StatefulRule
from .confident import Confident
from .unmask_trials import Brief


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Brief(lambda size: Denoise(Confident(0.6), size, FixedBlocks(32), remask=Edit(0.5, 2)), 3)],
    paper="2602.08676",
    systems=("LLaDA2.1 (token editing)",),
)
@dataclass(frozen=True)
class Edit(StatefulRule):
    """Replace each token of the block by argmax p where that is another token with more than `threshold`.

    Tokens are looked at again at every look; when no hole is left, in up to `passes` looks more, until one changes
    nothing. The prompt and finished blocks are never edited, and no token becomes one that the request forbids: an edit
    that a constraint does not allow is not made.

    Claim: HEURISTIC; a threshold above 1 never edits. What is edited is chosen and not drawn, so texts are likelier
    than the model's own; it loses where two tokens are each right for the other's rival and go on swapping. Cost: the
    looks that fill, and up to `passes` per block.
    """

    threshold: float = 0.9
    passes: int = 16

    def __post_init__(self) -> None:
        expect(level(self.threshold), "edit:edit", self.threshold, "a number; usual is 0.9")
        expect(whole(self.passes, 0), "edit:passes", self.passes, "a whole number of looks from 0 on")

    @property
    def looks(self) -> int:
        return self.passes

    def asks(self, canvas: Canvas) -> Collection[int]:
        return _Editing(self).asks(canvas)

    def begin(self) -> _Editing:
        return _Editing(self)


@dataclass
class _Editing:
    """How many looks in this block were for edits alone, and what the last of them was at."""

    rule: Edit
    window: tuple[int, int] = (0, 0)
    passes: int = 0
    seen: tuple[int, ...] = ()

    def asks(self, canvas: Canvas) -> Collection[int]:
        """Every draft of the window, while passes are left and the last has changed something."""
        if canvas.window != self.window:
            self.window, self.passes, self.seen = canvas.window, 0, ()
        left = self.passes < self.rule.passes or (canvas.holes and not self.passes)
        if self.rule.threshold > 1 or canvas.tokens == self.seen or not left:
            return ()
        return [i for i in range(*canvas.window) if canvas.status[i] == Status.DRAFT]

    def __call__(self, state: DenoiseState, canvas: Canvas) -> Canvas:
        old = [i for i in state.raw if state.canvas.status[i] == Status.DRAFT]
        rivals = {i: peak.token for i in old if (peak := state.peak(i)).p > self.rule.threshold}
        edits = {i: x for i, x in rivals.items() if x != canvas.tokens[i] and state.law(i)[x] > 0}
        self.passes = 0 if state.holes else self.passes + 1
        self.seen = () if state.holes else state.canvas.tokens
        return canvas.fill(edits, Status.DRAFT) if edits else canvas
