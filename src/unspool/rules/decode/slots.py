"""A few slots filled by a beam: first one by one, then several at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from ...core.asks import Ask, Decoding, Done, Emit, Look, OutOfTime
from ...core.canvas import Canvas, Field
from ...core.chance import Chance
from ...core.claim import HEURISTIC, claims
from ...core.law import Law
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.warp.warp import Same, Temperature, Warp
from ...loops.denoise import room
from ...loops.denoise_state import DenoiseState
from ...loops.guard import parts, unguarded


def anything(tokens: tuple[int, ...]) -> bool:
    """Every text will do."""
    return True


class SlotBeam(NamedTuple):
    """A canvas, the log-probability of what was filled, and the laws of that, before and after warps."""

    canvas: Canvas
    score: float
    laws: dict[int, tuple[Law, Law]]


@claims(HEURISTIC, shaped=False, trials=lambda rule: [rule(3, beam=2)], paper="2601.19501", systems=("MDGR",))
@dataclass(frozen=True)
class Slots:
    """Keep the `beam` likeliest fillings; `warm` steps fill the surest slot, every later one the `together` surest.

    A step fills the same slots on all beams, those with the highest mean of max p, since scores of different orders
    cannot be compared; slots filled together are scored as if they were independent. Of the final beams the likeliest
    that is `valid` is written, or the likeliest if none is. Reconstructed from the abstract.

    Claim: HEURISTIC. Serial and with a beam as wide as all texts together it finds the likeliest of them. It loses as
    every beam does, where the likeliest begins unlikely, and where slots filled together belong together. Cost: one
    look per beam and step.
    """

    size: int = 0
    beam: int = 8
    warm: int = 1
    together: int = 2
    valid: Callable[[tuple[int, ...]], bool] = anything

    def __post_init__(self) -> None:
        expect(whole(self.size, 0), "slots:size", self.size, "a whole number of slots; 0 for as many as may follow")
        expect(whole(self.beam, 1), "slots:beam", self.beam, "a whole number of beams from 1 on")
        expect(whole(self.warm, 0), "slots:warm", self.warm, "a whole number of steps from 0 on")
        expect(whole(self.together, 1), "slots:together", self.together, "a whole number of slots from 1 on")

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        tail, warp = stop.start(), _chanceless(unguarded(warp, "slots"))
        blank = Canvas.blank(text, self.size or room(stop.left(tail)))
        beams = yield from self.ranked(blank, chance, warp)
        best = next((b for b in beams if self.valid(b.canvas.tokens[len(text) :])), beams[0])
        settled = best.canvas.settled  # all of it, or as much as there was time for
        kept, reason, _, trim = stop.cut(tail, best.canvas.tokens[len(text) : settled])
        shown = [best.laws[i] for i in range(len(text), len(text) + len(kept))]
        before, after = [law for law, _ in shown], [law for _, law in shown]
        yield Emit(kept, before, after, rounds=0, canvas=best.canvas)
        return Done(kept, reason or ("length" if settled == len(best.canvas) else "time"), trim)

    def ranked(self, canvas: Canvas, chance: Chance, warp: Warp) -> Generator[Ask, Any, Sequence[SlotBeam]]:
        """All beams with no slot left, the likeliest first; if the time is over before, as they are then."""
        beams, step = [SlotBeam(canvas, 0.0, {})], 0
        while holes := beams[0].canvas.holes:
            sights = []
            try:
                for beam in beams:
                    field: Field = yield Look(beam.canvas)
                    sights.append(DenoiseState(beam.canvas, field, warp, chance))
            except OutOfTime:
                return beams
            sure = {i: sum(sight.peak(i).p for sight in sights) for i in holes}
            count = 1 if step < self.warm else self.together
            wider = list(zip(beams, sights, strict=True))
            for slot in sorted(holes, key=lambda i: -sure[i])[:count]:
                wider = sorted(self._with(slot, wider), key=lambda pair: -pair[0].score)[: self.beam]
            beams, step = [beam for beam, _ in wider], step + 1
            yield Emit((), (), (), canvas=beams[0].canvas)
        return beams

    def _with(self, slot: int, beams: Sequence[tuple[SlotBeam, DenoiseState]]) -> list[tuple[SlotBeam, DenoiseState]]:
        """Every beam with each of its best tokens in a slot."""
        wider = []
        for beam, sight in beams:
            law = sight.law(slot)
            laws = {**beam.laws, slot: (sight.raw[slot], law)}
            for token in _likeliest(law, self.beam):
                filled = replace(beam.canvas.fill({slot: token}), step=sight.canvas.step + 1)
                wider.append((SlotBeam(filled, beam.score + law.logprob(token), laws), sight))
        return wider


def _chanceless(warp: Warp) -> Warp:
    """The warp without a temperature of 0: that says to draw nothing, as is done here, and would leave one beam."""
    return reduce(or_, [part for part in parts(warp) if part != Temperature(0.0)], Same())


def _likeliest(law: Law, count: int) -> list[int]:
    """The best tokens of a law that are possible at all."""
    return [x for x in law.top(count) if law[x] > 0]
