"""The one loop of any-order decoding: look at the holes, choose some, fill them, think again."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ..asks import Decoding, Done, Emit
from ..canvas import Canvas, Status
from ..chance import Chance
from ..errors import BadRequest
from ..field import Field
from ..law import Law
from ..stop import Stop
from ..unmask.blocks import Blocks, narrowed, whole
from ..unmask.checked import Check
from ..unmask.guard import free, guarded, mended
from ..unmask.remask import Remask
from ..unmask.sight import Sight
from ..unmask.unmask import Unmask, begun, suited
from ..unmask.view import View, look
from ..warp.warp import Warp


@dataclass(frozen=True)
class Denoise:
    """Fill `size` holes after the text (0: as many as may follow), a chosen few per look, each from its own law.

    `blocks` says where, `view` how the laws come about, `unmask` which holes are filled, `check` whether they stand,
    `remask` what is taken back. A constraint among the warps is asked before anything stands. Exact if the choice
    depends on laws alone and never takes two dependent holes at once, or if every draft is checked.

    Cost: one forward per look, over what the model's layout and the view make of the canvas.
    """

    unmask: Unmask
    size: int = 0
    blocks: Blocks = whole
    view: View = look
    remask: Remask | None = None
    check: Check | None = None

    def fit(self, vocabulary: Any) -> Denoise:
        """With every part made to fit this vocabulary."""
        return replace(
            self,
            unmask=suited(self.unmask, vocabulary),
            blocks=suited(self.blocks, vocabulary),
            view=suited(self.view, vocabulary),
            remask=suited(self.remask, vocabulary),
        )

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        """Fill a canvas after `text`; what stands without a gap is emitted, and cut where `stop` says."""
        tail = stop.start()
        canvas = Canvas.blank(text, self.size or room(stop.left(tail)))
        unmask, blocks, view, remask = begun(self.unmask), begun(self.blocks), begun(self.view), begun(self.remask)
        warp, guard = guarded(warp, canvas, stop)
        revised = remask is not None or guard is not free
        laws: dict[int, tuple[Law, Law]] = {}  # before and after warps
        told = len(text)
        while True:
            sheet = blocks(canvas)
            end = canvas.end(stop.tokens)
            again = () if remask is None else remask.asks(sheet)
            places = sorted({*(i for i in sheet.holes if i < end), *again})
            if places:
                field: Field = yield from view(sheet, places)
                sight = narrowed(blocks, Sight(sheet, field, warp, chance, remask is not None))
                chosen = unmask(sight) if sight.holes else ()
                if not chosen and remask is None:
                    raise RuntimeError(f"{unmask} chose none of {len(sight.holes)} holes; expected at least one")
                if self.check is not None and sight.holes:
                    chosen = yield from self.check(sight, chosen)
                canvas = guard(sight, canvas, chosen, Status.DRAFT if revised else Status.FIXED)
                canvas = canvas if remask is None else mended(guard, remask(sight, canvas))
                laws |= {i: (sight.raw[i], sight.law(i)) for i in sight.raw if canvas.tokens[i] != sheet.tokens[i]}
            else:
                canvas = canvas.fixed(*sheet.window)
            kept, reason, tail, trim = stop.cut(tail, canvas.tokens[told : canvas.settled])
            if kept or places:
                shown = [laws.pop(i) for i in range(told, told + len(kept))]  # each holds on to all that its look told
                before, after = [law for law, _ in shown], [law for _, law in shown]
                yield Emit(kept, before, after, rounds=bool(places), canvas=canvas)
                told += len(kept)
            if reason or told == len(canvas):
                return Done(canvas.tokens[len(text) : told], reason or "length", trim)


def room(left: float) -> int:
    """How many holes a canvas has whose size is not told: as many tokens as may follow."""
    if left == math.inf:
        raise BadRequest("a canvas needs a size: set max_tokens, or the method's option size")
    return int(left)
