"""All that is left at once, as soon as the answer no longer changes."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import HEURISTIC, Method, claims
from ...core.option import expect, level
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Blocks, FixedBlocks, Rule, Unmask, whole, with_holes
from .confident import Confident

ONE = Confident(math.inf)  # the surest hole alone


def _trials(rule: type[Early]) -> list[Method]:
    return [Denoise(rule(ONE, FixedBlocks(2), (0.7, 0.5, 0.3)), 3)]


@claims(HEURISTIC, shaped=False, trials=_trials, paper="2508.19982", systems=("Prophet",))
@dataclass(frozen=True)
class Early(Rule):
    """Fill every hole as soon as the mean lead of the best token in logits is wide enough, until then what `rule` says.

    g = mean over the holes of log p₍₁₎ − log p₍₂₎; the lead has to be `gaps[0]` in the first third of the answer's
    looks, then `gaps[1]`, then `gaps[2]`, where an answer has as many looks as places. `watched` holes are averaged
    over, from the right, if told: where the answer proper stands; the paper pins a phrase before it. `blocks` are for
    `rule`. At a temperature above 0 what is left is drawn and not taken by argmax.

    Claim: HEURISTIC. Gaps of infinity never end early, gaps of 0 fill all after one look. The gap is in logits, whose
    scale differs from model to model; a mean hides the one hole that is still open. Cost: one look per step of `rule`,
    and one for all the rest.
    """

    rule: Unmask = ONE
    blocks: Blocks = whole
    gaps: tuple[float, float, float] = (7.5, 5.0, 2.5)
    watched: int = 0

    def __post_init__(self) -> None:
        for name, gap in zip(("early", "middle", "late"), self.gaps, strict=True):
            expect(level(gap), f"early:{name}", gap, "a number; usual is 7.5, then 5, then 2.5")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        canvas = state.canvas
        done = canvas.step / max(1, len(canvas) - canvas.prompt)
        if self._gap(state) >= self.gaps[min(2, int(3 * done))]:
            return state.holes
        near = state.within(*with_holes(self.blocks, canvas))
        return self.rule(near if near.holes else state)  # the view may not have shown the block

    def _gap(self, state: DenoiseState) -> float:
        holes = [i for i in state.holes if i not in state.raw.final][-self.watched :]
        leads = []
        for i in holes:
            _, best, margin, _ = state.peak(i)
            second = best - margin
            leads.append(math.log(best / second) if second > 0 else math.inf)
        return sum(leads) / len(leads) if leads else math.inf
