"""The gaps of a text, filled one after the other by several beams, each given what went into those before it."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...core.asks import Ask, Look
from ...core.canvas import Canvas, Field
from ...core.chance import Chance
from ...core.law import NEVER, Law
from ...core.warp.warp import Warp
from ...loops.denoise_state import DenoiseState
from ..search.search_text import without_greedy


class Inserted(NamedTuple):
    """A token that goes into a gap, with its laws before and after warps."""

    token: int
    before: Law
    after: Law


class GapsFilled(NamedTuple):
    """What one beam has put into gaps so far, and Σ ln p of all its choices, closed gaps among them."""

    put: dict[int, Inserted]
    logp: float


@dataclass(frozen=True)
class GapBeam:
    """Keep the `width` likeliest ways to fill the gaps up to each one; `none` leaves a gap closed.

    POINTER's beam inside a round: gaps that are filled at once do not know of each other, and may get the same word.
    Laws are weighed by `factors` before the warps.

    Cost: one look per gap, at `width` copies of the canvas.
    """

    width: int
    none: int
    factors: Mapping[int, float]

    def __call__(
        self, canvas: Canvas, warp: Warp, chance: Chance, room: float
    ) -> Generator[Ask, Any, dict[int, Inserted]]:
        beams, warp = [GapsFilled({}, 0.0)], without_greedy(warp)
        for gap in canvas.holes:
            shown = tuple({i: inserted.token for i, inserted in beam.put.items()} for beam in beams)
            told: Field = yield Look(canvas, (gap,), trials=shown)
            grown: list[GapsFilled] = []
            for beam, field, known in zip(beams, told.parted(len(canvas)), shown, strict=True):
                before = weighed(field[gap], self.factors)
                law = DenoiseState(canvas.fill(known), Field({gap: before}), warp, chance).law(gap)
                for token in dict.fromkeys((*law.top(self.width), self.none)):
                    if token == self.none:
                        grown.append(GapsFilled(beam.put, beam.logp + law.logprob(token)))
                    elif len(beam.put) < room and law[token] > 0:
                        put = {**beam.put, gap: Inserted(token, before, law)}
                        grown.append(GapsFilled(put, beam.logp + law.logprob(token)))
            beams = sorted(grown, key=lambda beam: -beam.logp)[: self.width]
        return beams[0].put


def weighed(law: Law, factors: Mapping[int, float]) -> Law:
    """This law with the weights of some tokens multiplied."""
    if not factors:
        return law
    scores = law.scores.clone()
    for token, factor in factors.items():
        scores[token] += math.log(factor) if factor else NEVER
    return Law(scores)
