"""What may stand on a canvas: everything, or what leaves a grammar a way to be completed."""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any, Protocol, TypeAlias

from ..core.asks import Ask
from ..core.canvas import HOLE, Binding, Canvas, Status
from ..core.chance import At, Role
from ..core.errors import BadRequest, EmptyLaw
from ..core.law import NEVER
from ..core.stop import Stop
from ..core.warp.forbid import BadWords, Forbid, MinTokens, NoRepeatNgram
from ..core.warp.never_say import NeverSay
from ..core.warp.penalise import LogitBias
from ..core.warp.warp import Beside, Both, Same, Warp
from .denoise_state import DenoiseState

PROHIBITIONS = (BadWords, MinTokens, NeverSay, NoRepeatNgram)  # asked again whenever a neighbour is filled


Placing: TypeAlias = Generator[Ask, Any, Canvas]
"""What comes to a canvas in the end; on the way to it others may be let go on (`GiveWay`)."""


class Guard(Protocol):
    """Puts tokens on a canvas: those that were chosen, or others where those may not stand."""

    def __call__(self, state: DenoiseState, canvas: Canvas, chosen: Collection[int], status: Status) -> Placing:
        """The canvas one step later.

        If any hole was chosen at least one is filled, or an error says why none can be; if none was, it is the same
        canvas at its next step.
        """

    def mend(self, state: DenoiseState, before: Canvas, after: Canvas) -> Placing:
        """The canvas after a second thought has changed it, with what stood before where the change may not stand."""


class Careful:
    """What was drawn may stand if the warps still allow it beside all that stands by then, else another draw.

    Holes that are filled at one look are shaped by what stood before it; two of them may only together be something
    forbidden. So each is asked about again when it is filled, the surest first.
    """

    def __call__(self, state: DenoiseState, canvas: Canvas, chosen: Collection[int], status: Status) -> Placing:
        yield from ()
        tokens, placed = list(canvas.tokens), dict[int, int]()
        for i in sorted(chosen, key=lambda i: -state.peak(i).p):
            try:
                token, law = state.draw(i).token, state.beside(tokens, i)
                if law[token] == 0:
                    state.settle(i, law.draw(state.chance, At(i, Role.FILL, 1, state.canvas.step)))
            except EmptyLaw:
                if not placed:
                    raise
                continue  # nothing may stand there, and the next look says so, unless it is behind the end by then
            tokens[i] = placed[i] = state.draw(i).token
        return canvas.fill(placed, status)

    def mend(self, state: DenoiseState, before: Canvas, after: Canvas) -> Placing:
        yield from ()
        tokens, back = list(before.tokens), dict[int, int]()
        changed = [i for i, token in enumerate(after.tokens) if token != tokens[i]]
        for i in changed:
            old, new = tokens[i], after.tokens[i]
            tokens[i] = HOLE
            tokens[i] = new if new == HOLE or self._may_stand(state, tokens, i, new) else old
            if tokens[i] != new:
                back[i] = old
        return replace(after.fill(back, Status.DRAFT), step=after.step) if back else after

    def _may_stand(self, state: DenoiseState, tokens: list[int], i: int, token: int) -> bool:
        try:
            return state.beside(tokens, i)[token] > 0
        except EmptyLaw:
            return False


class Free:
    """Whatever was drawn may stand."""

    def __call__(self, state: DenoiseState, canvas: Canvas, chosen: Collection[int], status: Status) -> Placing:
        yield from ()
        return canvas.fill({i: state.draw(i).token for i in chosen}, status)

    def mend(self, state: DenoiseState, before: Canvas, after: Canvas) -> Placing:
        yield from ()
        return after


def guarded(warp: Warp, canvas: Canvas, stop: Stop) -> Generator[Ask, Any, tuple[Warp, Guard]]:
    """What shapes single laws, and what guards the canvas as a whole."""
    listed = parts(warp)
    _refuse_undeclared(listed)
    _refuse_readers(listed)
    binding = [part for part in listed if isinstance(part, Binding)]
    if not binding:
        return warp, Careful() if any(isinstance(part, PROHIBITIONS) for part in listed) else Free()
    if len(binding) > 1:
        raise BadRequest(f"{len(binding)} constraints bind this canvas; expected one: join them with & into one")
    if any(forbids(part) for part in listed):
        raise BadRequest(
            "a constraint and tokens that are forbidden beside it (bad_words, no_repeat_ngram_size, min_tokens, a bias "
            "of -inf) cannot both be kept on a canvas; say all of it in the constraint, or use a method that reads "
            "left to right, such as plain"
        )
    rest = [part for part in listed if part is not binding[0]]
    return reduce(or_, rest, Same()), (yield from binding[0].guard(canvas, stop))


def unbound(warp: Warp, method: str) -> Warp:
    """The same warp, refused if it binds the text as a whole: for loops that have no guard to ask."""
    _refuse_undeclared(listed := parts(warp))
    if any(isinstance(part, Binding) for part in listed):
        raise BadRequest(
            f"{method} cannot keep to a constraint; use a method that can, such as plain, or confident on a canvas, or "
            "leave the constraint out"
        )
    return warp


def unguarded(warp: Warp, method: str) -> Warp:
    """The same warp, refused if it takes a guard to keep to it: for loops over canvases that have none."""
    listed = parts(unbound(warp, method))
    _refuse_readers(listed)
    if any(isinstance(part, PROHIBITIONS) for part in listed):
        raise BadRequest(
            f"{method} cannot keep to bad_words, no_repeat_ngram_size or min_tokens; use a method that fills a canvas "
            "look by look, such as confident, or leave them out"
        )
    return warp


def _refuse_undeclared(listed: list[Warp]) -> None:
    """Refuse a warp that has a guard but does not say so, as nobody would ask it."""
    for kind in {type(part) for part in listed if not isinstance(part, Binding)}:
        if hasattr(kind, "guard"):
            raise BadRequest(
                f"{kind.__name__} has a guard that nobody asks; derive it from unspool.core.canvas.Binding"
            )


def _refuse_readers(listed: list[Warp]) -> None:
    """Refuse a warp whose memory is of a text that was read from left to right: a canvas has no such text."""
    for part in listed:
        reads = type(part).step is not Warp.step and not isinstance(part, (Beside, Binding))
        if reads:
            raise BadRequest(
                f"{type(part).__name__} depends on all the text before a token, and a canvas that is filled in any "
                "order has no such text; leave it out, use a method that reads left to right, such as plain, or give "
                "it a `beside`"
            )


def forbids(part: Warp) -> bool:
    """True for a warp that forbids tokens, whatever the model thinks of them: everywhere, or after some texts."""
    everywhere = isinstance(part, Forbid) or (isinstance(part, LogitBias) and NEVER in part.bias.values())
    return everywhere or isinstance(part, PROHIBITIONS)


def parts(warp: Warp) -> list[Warp]:
    """The single warps that a warp is made of, in their order."""
    return [*parts(warp.first), *parts(warp.second)] if isinstance(warp, Both) else [warp]
