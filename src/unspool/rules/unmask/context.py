"""Guidance by a poorer context: away from what the model would write if it knew less of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.asks import Look
from ...core.canvas import Canvas, Field
from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real
from ...loops.denoise import Denoise
from ...loops.unmasker import Viewing, look
from .cooling import Cooling
from .guided import further
from .unmask_trials import Brief


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Brief(lambda size: Denoise(Cooling(0.0), size, view=Context(2.0, 0.5)))],
    paper="2501.06158",
    systems=("GenMol (molecular context guidance)",),
)
@dataclass(frozen=True)
class Context:
    """Look twice, the second time with a `share` of the prompt masked: l ← weight·l + (1 − weight)·l_poor.

    The paper masks at random; a look draws nothing, so here the masked tokens are spread evenly. A token that either
    look rules out keeps its score from the first.

    Claim: HEURISTIC; share 0 or weight 1 is one plain look. It loses on prompts that say everything twice, where the
    two looks agree, and on short ones, where a share is all or nothing. Cost: two looks for each.
    """

    weight: float = 2.0
    share: float = 0.3

    def __post_init__(self) -> None:
        expect(real(self.weight, 0), "context:weight", self.weight, "a number from 0 on; 1 turns guidance off")
        expect(real(self.share, 0, 1), "context:share", self.share, "a share from 0 to 1")

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        rich = yield from look(canvas, places)
        count = round(self.share * canvas.prompt)
        if self.weight == 1 or count == 0:
            return rich
        masked = {int((n + 0.5) * canvas.prompt / count) for n in range(count)}
        poor: Field = yield Look(canvas.masked(masked), tuple(places))
        return further(rich, poor, self.weight - 1)
