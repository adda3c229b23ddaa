"""A text that is there already, and the holes that are made in it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...core.asks import Ask, Decoding, Done, Emit, OutOfTime
from ...core.canvas import Canvas, Field, Status
from ...core.chance import Chance
from ...core.law import Law
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Unmask, View, begun


class Hypothesis(NamedTuple):
    """A text with the laws its tokens came from, before and after warps, and the step at which it was finished."""

    tokens: tuple[int, ...]
    before: Sequence[Law]
    after: Sequence[Law]
    reason: str
    step: int

    def canvas(self, text: tuple[int, ...]) -> Canvas:
        """The text after a prompt, as drafts."""
        blank = replace(Canvas.blank(text, len(self.tokens)), step=self.step)
        return blank.fill(dict(enumerate(self.tokens, len(text))), Status.DRAFT)


@dataclass(frozen=True)
class GivenText:
    """The method that writes these tokens and asks nothing: a hypothesis from elsewhere."""

    tokens: tuple[int, ...]

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        kept, reason, _, trim = stop.cut(stop.start(), self.tokens)
        points = [Law.point(x) for x in kept]
        yield Emit(kept, points, points, rounds=0)
        return Done(kept, reason or "length", trim)


def overheard(decoding: Decoding) -> Generator[Ask, Any, Hypothesis]:
    """What a method writes, kept back: nothing of it is handed to whoever listens but the canvas it is on.

    If the time is over, the method is told, and what it hands out then is all it writes.
    """
    tokens, before, after = list[int](), list[Law](), list[Law]()
    reply: Any = None
    step, late = 0, None
    while True:
        try:
            ask = decoding.send(reply) if late is None else decoding.throw(late)
        except StopIteration as end:
            done: Done = end.value
            return Hypothesis(done.tokens, before, after, done.reason, step)
        except OutOfTime:
            return Hypothesis(tuple(tokens), before, after, "time", step)
        if isinstance(ask, Emit):
            tokens += ask.tokens
            before, after = [*before, *ask.before], [*after, *ask.after]
            step = step if ask.canvas is None else ask.canvas.step
            ask = Emit((), (), (), rounds=ask.rounds, canvas=ask.canvas)
        late = None
        try:
            reply = yield ask
        except OutOfTime as over:
            late = over


class Refilled(NamedTuple):
    """A canvas without holes, and the laws of what was filled, before and after warps."""

    canvas: Canvas
    laws: dict[int, tuple[Law, Law]]


def refilled(canvas: Canvas, unmask: Unmask, view: View, warp: Warp, chance: Chance) -> Generator[Ask, Any, Refilled]:
    """Fill the holes of the window as drafts, those that `unmask` chooses at each look."""
    unmask, view = begun(unmask), begun(view)
    laws: dict[int, tuple[Law, Law]] = {}
    while canvas.holes:
        field: Field = yield from view(canvas, canvas.holes)
        state = DenoiseState(canvas, field, warp, chance, renewed=True)
        chosen = unmask(state)
        canvas = canvas.fill({i: state.draw(i).token for i in chosen}, Status.DRAFT)
        laws |= {i: (field[i], state.law(i)) for i in chosen}
        yield Emit((), (), (), canvas=canvas)
    return Refilled(canvas, laws)
