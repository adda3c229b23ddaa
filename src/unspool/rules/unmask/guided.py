"""Classifier-free guidance: away from what the model would write without the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...core.asks import Look
from ...core.canvas import Canvas, Field
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real
from ...loops.denoise import Denoise
from ...loops.unmasker import FixedBlocks, Viewing, look
from .quota import Quota


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Quota(2), 3, FixedBlocks(32), Guided(0.5))],
    paper="2502.09992",
    systems=("LLaDA (classifier-free guidance)",),
)
@dataclass(frozen=True)
class Guided:
    """Look twice, with the prompt and with holes in its place, and go `scale` times further than the prompt leads.

    l ← l₀ + (scale + 1)·(l − l₀), with l₀ the scores without the prompt. A token that either look rules out keeps its
    score from the look with the prompt.

    Claim: HEURISTIC; scale 0 is one plain look, and exact. It loses where the prompt says little, since the difference
    is then mostly noise. Cost: two looks for each.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        expect(real(self.scale, 0), "guided:scale", self.scale, "a number from 0 on; 0 turns guidance off")

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        led = yield from look(canvas, places)
        if self.scale == 0 or canvas.prompt == 0:
            return led
        alone: Field = yield Look(canvas.masked(range(canvas.prompt)), tuple(places))
        return further(led, alone, self.scale)


def further(led: Field, other: Field, scale: float) -> Field:
    """The laws of a look that go `scale` times further from another than they do: l + scale·(l − l₀).

    They are final where both are: a look without the prompt may still learn from what is open.
    """
    known = led.scores.isfinite() & other.scores.isfinite()
    apart = torch.where(known, led.scores - other.scores, 0.0)
    return Field.of(list(led), led.scores + scale * apart, led.rows + other.rows, led.final & other.final)
