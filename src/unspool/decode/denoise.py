"""The one loop of any-order decoding: look at the holes, choose some, fill them."""

from __future__ import annotations

from dataclasses import dataclass

from ..asks import Decoding, Done, Emit, Field, Look
from ..canvas import Canvas
from ..chance import At, Chance, Role
from ..stop import Stop
from ..unmask.select import Select
from ..warp.warp import Prefix, Warp


@dataclass(frozen=True)
class Denoise:
    """Fill `size` holes after the text, a chosen few per look, each from its own law.

    Exact if the choice never takes two dependent holes at once. A stop cuts the finished canvas.

    Cost: one forward over the canvas per look.
    """

    select: Select
    size: int

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        """Fill a canvas after `text`, then cut it where `stop` says."""
        prefix, canvas = Prefix.of(text, warp), Canvas.blank(text, self.size)
        before, after = {}, {}
        while canvas.holes:
            raw: Field = yield Look(canvas)
            field = {i: prefix.shape(law) for i, law in raw.items()}
            chosen = self.select(field, canvas, chance)
            for i in chosen:
                before[i], after[i] = raw[i], field[i]
            canvas = canvas.fill({i: field[i].draw(chance, At(i, Role.PICK)).token for i in chosen})
        kept, reason, _, trim = stop.cut(stop.start(), canvas.tokens[len(text) :])
        new = range(len(text), len(text) + len(kept))
        yield Emit(kept, [before[i] for i in new], [after[i] for i in new])
        return Done(kept, reason or "length", trim)
