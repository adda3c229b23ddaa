"""A few slots filled by a beam: first one by one, then several at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...core.asks import Ask, Decoding, Done, Emit, Look, OutOfTime
from ...core.canvas import Canvas, Field
from ...core.chance import Chance
from ...core.claim import HEURISTIC, Watchable, claims
from ...core.errors import BadRequest, EmptyLaw
from ...core.law import Law
from ...core.option import expect, whole
from ...core.reported_law import worth_keeping
from ...core.stop import Stop
from ...core.warp.warp import Same, Temperature, Warp
from ...loops.denoise import room
from ...loops.denoise_state import DenoiseState
from ...loops.guard import parts, unguarded
from ..constrain.constraint import Constrained
from ..constrain.itemset import ItemSet
from ..constrain.static import Static


def anything(tokens: tuple[int, ...]) -> bool:
    """Every text will do."""
    return True


class SlotBeam(NamedTuple):
    """A canvas, the log-probability of what was filled, and the laws of that, before and after warps.

    `left` are the items, as numbers of rows, that have all that was filled; None where there is no set of them.
    """

    canvas: Canvas
    score: float
    laws: dict[int, tuple[Law, Law]]
    left: Tensor | None = None


class Filled(NamedTuple):
    """One of the final beams as a text of a search."""

    tokens: tuple[int, ...]
    score: float
    reason: str
    trim: int
    laws: Sequence[tuple[Law, Law]]

    def told(self) -> Sequence[tuple[Law, Law]]:
        """The laws that its tokens were chosen from, before and after warps."""
        return self.laws


@claims(HEURISTIC, shaped=False, trials=lambda rule: [rule(3, beam=2)], paper="2601.19501", systems=("MDGR",))
@dataclass(frozen=True)
class Slots(Watchable):
    """Keep the `beam` likeliest fillings; `warm` steps fill the surest slot, every later one the `together` surest.

    A step fills the same slots on all beams, those with the highest mean of max p, since scores of different orders
    cannot be compared; slots filled together are scored as if they were independent. Of the final beams the likeliest
    that is `valid` is written, or the likeliest if none is; n texts are the n likeliest. Bound to a set of items
    (`--items FILE`), a slot only takes tokens that some item has there beside all that was filled, so that every beam
    is an item; with a beam as wide as the set it ranks them all. Without a size there are as many slots as the longest
    item has tokens, and behind a shorter one stands the token that ends texts. Reconstructed from the abstract.

    Claim: HEURISTIC. Serial and with a beam as wide as all texts together it finds the likeliest of them. It loses as
    every beam does, where the likeliest begins unlikely, and where slots filled together belong together. Cost: one
    look per beam and step.
    """

    RANKS: ClassVar[bool] = True
    SCORES: ClassVar[str] = "logp"

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
        tail = stop.start()
        items, warp = _bound(warp)
        warp, size = _chanceless(unguarded(warp, "slots")), self.size
        rows = None if items is None else _rows(items, size)
        size = size if rows is None else rows.shape[1]
        blank = Canvas.blank(text, size or room(stop.left(tail)))
        beams = yield from self.ranked(blank, chance, warp, rows, stop.told)
        fits = [b for b in beams if self.valid(b.canvas.tokens[len(text) :])]
        found = [_filled(beam, len(text), stop) for beam in fits or beams]
        self.watch(found)
        tokens, _, reason, trim, shown = found[0]
        before, after = [law for law, _ in shown], [law for _, law in shown]
        yield Emit(tokens, before, after, rounds=0, canvas=(fits or beams)[0].canvas)
        return Done(tokens, reason, trim)

    def ranked(
        self, canvas: Canvas, chance: Chance, warp: Warp, items: Tensor | None = None, told: float = math.inf
    ) -> Generator[Ask, Any, Sequence[SlotBeam]]:
        """All beams with no slot left, the likeliest first; if the time is over before, as they are then.

        `items` are the texts that there may be, a row each; `told` is what somebody is told of laws (see `Stop`).
        """
        beams, step = [SlotBeam(canvas, 0.0, {}, None if items is None else torch.arange(len(items)))], 0
        while holes := beams[0].canvas.holes:
            sights = []
            try:
                for beam in beams:
                    field: Field = yield Look(beam.canvas)
                    sights.append(DenoiseState(beam.canvas, field, warp, chance))
            except OutOfTime:
                return beams
            sure = {i: sum(state.peak(i).p for state in sights) for i in holes}
            count = 1 if step < self.warm else self.together
            wider = list(zip(beams, sights, strict=True))
            for slot in sorted(holes, key=lambda i: -sure[i])[:count]:
                wider = sorted(self._with(slot, wider, items, told), key=lambda pair: -pair[0].score)[: self.beam]
            beams, step = [beam for beam, _ in wider], step + 1
            yield Emit((), (), (), canvas=beams[0].canvas)
        return beams

    def _with(
        self, slot: int, beams: Sequence[tuple[SlotBeam, DenoiseState]], items: Tensor | None, told: float
    ) -> list[tuple[SlotBeam, DenoiseState]]:
        """Every beam with each of its best tokens in a slot, among those that some item has there."""
        wider = []
        for beam, state in beams:
            law, left, column = state.law(slot), beam.left, None
            own = law  # items are ranked by what the model thinks of them, not of them among each other
            if items is not None and left is not None:
                column = items[left, slot - beam.canvas.prompt]
                mask = torch.zeros(law.size, dtype=torch.bool)
                mask[column] = True
                law = law.only(mask.to(law.scores.device))
                if law.is_empty():
                    continue  # the request's own warps forbid all of them
            for token in _likeliest(law, self.beam):
                laws = {**beam.laws, slot: worth_keeping(state.raw[slot], law, token, told)}
                filled = replace(beam.canvas.fill({slot: token}), step=state.canvas.step + 1)
                rest = None if column is None or left is None else left[column == token]
                wider.append((SlotBeam(filled, beam.score + own.logprob(token), laws, rest), state))
        if not wider:
            raise EmptyLaw("no item is left that the request's prohibitions allow; loosen them")
        return wider


def _bound(warp: Warp) -> tuple[ItemSet | None, Warp]:
    """The set of items that the text has to be of, if there is one, and the other warps."""
    listed = parts(warp)
    sets = [part for part in listed if isinstance(part, Constrained) and isinstance(part.constraint, Static)]
    if len(sets) != 1:
        return None, warp
    (one,) = sets
    assert isinstance(one.constraint, Static)
    return one.constraint.items, reduce(or_, [part for part in listed if part is not one], Same())


def _rows(items: ItemSet, size: int) -> Tensor:
    """The items of this size; if it is 0 all of them, with the token that ends texts behind the shorter ones."""
    sizes = (size,) if size else items.lengths
    if size not in (0, *items.lengths) or (len(sizes) > 1 and not len(items.stops)):
        told = ", ".join(map(str, items.lengths[:8]))
        raise BadRequest(f"slots:size is {size}; expected the tokens of an item, which have {told}")
    end, longest = int(items.stops[0]) if len(sizes) > 1 else 0, max(sizes)
    listed = (items.rows(length) for length in sizes)
    return torch.cat([pad(rows, (0, longest - rows.shape[1]), value=end) for rows in listed])


def _filled(beam: SlotBeam, prompt: int, stop: Stop) -> Filled:
    """What a beam writes, up to where the stop cuts it."""
    settled = beam.canvas.settled  # all of it, or as much as there was time for
    kept, reason, _, trim = stop.cut(stop.start(), beam.canvas.tokens[prompt:settled])
    shown = [beam.laws[i] for i in range(prompt, prompt + len(kept))]
    return Filled(kept, beam.score, reason or ("length" if settled == len(beam.canvas) else "time"), trim, shown)


def _chanceless(warp: Warp) -> Warp:
    """The warp without a temperature of 0: that says to draw nothing, as is done here, and would leave one beam."""
    return reduce(or_, [part for part in parts(warp) if part != Temperature(0.0)], Same())


def _likeliest(law: Law, count: int) -> list[int]:
    """The best tokens of a law that are possible at all."""
    return [x for x in law.top(count) if law[x] > 0]
