"""The one loop of any-order decoding: look at the holes, choose some, fill them, think again."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from ..core.asks import Decoding, Done, Emit, OutOfTime
from ..core.canvas import Canvas, Field, Frame, Status
from ..core.chance import Chance
from ..core.errors import BadRequest
from ..core.law import Law
from ..core.reported_law import worth_keeping
from ..core.stop import Stop
from ..core.warp.warp import Warp
from .denoise_state import DenoiseState
from .guard import guarded
from .unmasker import Blocks, Cutting, Recheck, Remask, Unmask, View, begun, look, narrowed, suited, whole


@dataclass(frozen=True)
class Denoise:
    """Fill `size` holes after the text (0: as many as may follow), a chosen few per look, each from its own law.

    `blocks` says where, `view` how the laws come about, `unmask` which holes are filled, `check` whether they stand,
    `remask` what is taken back. Of a run of holes that all end the text by the model's best guess only the first may
    be filled, when its turn comes; a short answer then takes as many looks as it has tokens, not as it has holes. A
    constraint among the warps is asked before anything stands. Exact if the choice depends on laws alone and never
    takes two dependent holes at once, or if every draft is checked.

    It ends whatever its parts do. Without `remask` every look fills a hole, so there are at most as many looks as
    holes. With one, the first n + `remask.looks` looks at a window of n places may take something back; after those
    nothing is taken back there any more, and every look fills a hole again, all that are left if the rule chooses none.
    That makes 2n + `remask.looks` looks per window at most; a view may take several looks for one.

    With a `frame` given text stands between and behind the holes. It is seen at every look; what was given behind the
    last hole is not written again.

    Cost: one forward per look, over what the model's layout and the view make of the canvas.
    """

    unmask: Unmask
    size: int = 0
    blocks: Blocks = whole
    view: View = look
    remask: Remask | None = None
    check: Recheck | None = None
    frame: Frame = ()

    def framed(self, frame: Frame) -> Denoise:
        if isinstance(self.blocks, Cutting):
            kind = type(self.blocks).__name__
            raise BadRequest(f"{kind} cuts off what stands behind the text; leave suffix out, or the blocks", "suffix")
        return replace(self, frame=frame)

    def fit(self, vocabulary: Any) -> Denoise:
        return replace(
            self,
            unmask=suited(self.unmask, vocabulary),
            blocks=suited(self.blocks, vocabulary),
            view=suited(self.view, vocabulary),
            remask=suited(self.remask, vocabulary),
        )

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        """Fill a canvas after `text`; what stands without a gap is emitted, and cut where `stop` says.

        If its time is over, what stands then without a gap is emitted, though it might have been revised.
        """
        tail = stop.start()
        blank = Canvas.framed(text, self.frame) if self.frame else None
        canvas = Canvas.blank(text, self.size or room(stop.left(tail))) if blank is None else blank
        unmask, blocks, view, remask = begun(self.unmask), begun(self.blocks), begun(self.view), begun(self.remask)
        check = begun(self.check)
        warp, guard = yield from guarded(warp, canvas, stop)
        status = Status.FIXED if remask is None else Status.DRAFT
        looks: Counter[int] = Counter()  # at windows that something may be taken back in, by their first places
        laws: dict[int, tuple[Law, Law]] = {}  # before and after warps
        told, late = len(text), False
        while True:
            block = blocks(canvas)
            end = canvas.end(stop.tokens)
            low, high = block.window
            second = remask  # thoughts, while the window has looks left for them
            if self.remask is not None and looks[low] >= high - low + self.remask.looks:
                second = None
            again = () if second is None else second.asks(block)
            places = sorted({*(i for i in block.holes if i < end), *again})
            try:
                framed = block.within(low, len(block)) if self.frame else block  # what is behind is looked at too
                field: Field = (yield from view(framed, places)) if places else Field({})
            except OutOfTime:
                canvas, places, late = canvas.fixed(0, len(canvas)), [], True
            if places:
                looks[low] += 1
                seen = DenoiseState(block, field, warp, chance, remask is not None)
                state = narrowed(blocks, seen)
                if second is None and not state.holes:
                    state = seen  # nothing else is left to do
                chosen = unmask(state.before_end(stop.tokens)) if state.holes else ()
                if not chosen and remask is None:
                    raise RuntimeError(f"{unmask} chose none of {len(state.holes)} holes; expected at least one")
                if not chosen and second is None:
                    chosen = state.holes
                try:
                    if check is not None and state.holes:
                        chosen = yield from check(state, chosen)
                    canvas = yield from guard(state, canvas, chosen, status)
                    if second is not None:
                        canvas = yield from guard.mend(state, canvas, second(state, canvas))
                except OutOfTime:
                    canvas, late = canvas.fixed(0, len(canvas)), True
                changed = [i for i in state.raw if canvas.tokens[i] != block.tokens[i]]
                laws |= {i: worth_keeping(state.own(i), state.law(i), canvas.tokens[i], stop.told) for i in changed}
            elif not late and any(canvas.is_open(i) for i in range(low, min(high, end + 1))):
                canvas = canvas.fixed(low, high)
            elif not late and canvas.settled < min(end + 1, len(canvas)):
                raise RuntimeError(f"{blocks} gave the window {low}..{high}, where nothing is left to do")
            kept, reason, tail, trim = stop.cut(tail, canvas.tokens[told : min(canvas.settled, canvas.written)])
            if kept or places:  # what was given was certain
                shown = [laws.pop(i, (p := Law.point(canvas.tokens[i]), p)) for i in range(told, told + len(kept))]
                before, after = [law for law, _ in shown], [law for _, law in shown]
                yield Emit(kept, before, after, rounds=bool(places), canvas=canvas)
                told += len(kept)
            if reason or late or told == canvas.written:
                return Done(canvas.tokens[len(text) : told], reason or ("time" if late else "length"), trim)


def room(left: float) -> int:
    """How many holes a canvas has whose size is not told: as many tokens as may follow."""
    if left == math.inf:
        raise BadRequest("a canvas needs a size: set max_tokens, or the method's option size")
    return int(left)
