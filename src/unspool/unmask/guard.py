"""What may stand on a canvas: everything, or what leaves a grammar a way to be completed."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import Protocol, runtime_checkable

from ..canvas import Canvas, Status
from ..errors import BadRequest
from ..stop import Stop
from ..warp.warp import Both, Same, Warp
from .sight import Sight


class Guard(Protocol):
    """Puts tokens on a canvas: those that were chosen, or others where those may not stand."""

    def __call__(self, sight: Sight, canvas: Canvas, chosen: Collection[int], status: Status) -> Canvas:
        """The canvas one step later.

        If any hole was chosen at least one is filled, or an error says why none can be; if none was, it is the same
        canvas at its next step.
        """
        ...

    def mend(self, sight: Sight, before: Canvas, after: Canvas) -> Canvas:
        """The canvas after a second thought has changed it, with what stood before where the change may not stand."""
        ...


@runtime_checkable
class Binding(Protocol):
    """A warp that binds a text as a whole, and so says itself what may stand on a canvas."""

    def guard(self, canvas: Canvas, stop: Stop) -> Guard:
        """A guard for one request."""
        ...


class Free:
    """Whatever was drawn may stand."""

    def __call__(self, sight: Sight, canvas: Canvas, chosen: Collection[int], status: Status) -> Canvas:
        """All that was chosen."""
        return canvas.fill({i: sight.draw(i).token for i in chosen}, status)

    def mend(self, sight: Sight, before: Canvas, after: Canvas) -> Canvas:
        """All that was changed."""
        return after


def guarded(warp: Warp, canvas: Canvas, stop: Stop) -> tuple[Warp, Guard]:
    """What shapes single laws, and what guards the canvas as a whole."""
    listed = parts(warp)
    binding = [part for part in listed if isinstance(part, Binding)]
    if not binding:
        return warp, Free()
    if len(binding) > 1:
        raise BadRequest(f"{len(binding)} constraints bind this canvas; expected one: join them with & into one")
    rest = [part for part in listed if part is not binding[0]]
    return reduce(or_, rest, Same()), binding[0].guard(canvas, stop)


def unbound(warp: Warp, method: str) -> Warp:
    """The same warp, refused if it binds the text as a whole: for loops that have no guard to ask."""
    if any(isinstance(part, Binding) for part in parts(warp)):
        raise BadRequest(
            f"{method} cannot keep to a constraint; use a method that fills a canvas look by look, such as confident, "
            "or leave the constraint out"
        )
    return warp


def parts(warp: Warp) -> list[Warp]:
    """The single warps that a warp is made of, in their order."""
    return [*parts(warp.first), *parts(warp.second)] if isinstance(warp, Both) else [warp]
