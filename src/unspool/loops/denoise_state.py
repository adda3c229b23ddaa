"""What a rule sees of a canvas at one step: the holes, their laws, and the tokens that would go into them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import takewhile
from typing import Any

import torch

from ..core.canvas import Canvas, Confidence, Field, Status
from ..core.chance import At, Chance, Role
from ..core.law import Drawn, Law
from ..core.warp.warp import Beside, Both, Warp


@dataclass
class DenoiseState:
    """One look: the canvas, the model's own laws at the places that were looked at, and chance.

    `law(i)` is the law after all warps, which the token really comes from; `peak(i)` tells how sure the model itself
    is. `draw(i)` is the token that goes into hole i if it is chosen. A rule may look at it before it chooses, and then
    its choice depends on what was drawn; one that looks at laws alone leaves each token as it would have been drawn
    anyway. `renewed` says that places are filled more than once, so that each look needs noise of its own.
    """

    canvas: Canvas
    raw: Field
    warp: Warp
    chance: Chance
    renewed: bool = False
    _drawn: dict[int, Drawn] = field(default_factory=dict)
    _laws: dict[int, Law] = field(default_factory=dict)
    _told: dict[int, Law] = field(default_factory=dict)

    @cached_property
    def holes(self) -> list[int]:
        """The holes that were looked at, left to right."""
        return [i for i in self.raw if self.canvas.status[i] == Status.HOLE]

    def peak(self, i: int) -> Confidence:
        """How peaked the model's own law is at a place."""
        return self.raw.peaks[i]

    def law(self, i: int) -> Law:
        """The law at a place after all warps, each in the state that what stands on both sides puts it in."""
        if i not in self._laws:
            self._laws[i] = self.shaped(i, self.raw[i])
        return self._laws[i]

    def shaped(self, i: int, law: Law) -> Law:
        """Another law for a place, after all warps."""
        return self.beside(self.canvas.tokens, i, law)

    def beside(self, tokens: Sequence[int], i: int, law: Law | None = None) -> Law:
        """The law at a place after all warps, if these tokens stood on the canvas."""
        return self.warp(_state(self.warp, tokens, self.canvas.prompt, i), self.raw[i] if law is None else law)

    def draw(self, i: int) -> Drawn:
        """The token for a place, drawn once per look, with its law."""
        if i not in self._drawn:
            step = self.canvas.step
            at = At(i, Role.FILL, round=step) if self.renewed else At(i, Role.PICK)
            self._drawn[i] = self.law(i).draw(self.chance, at)
        return self._drawn[i]

    def preview(self, i: int) -> Drawn:
        """The token for a place, with noise of this look alone: for rules that choose by what was drawn."""
        if i not in self._drawn:
            self._drawn[i] = self.law(i).draw(self.chance, At(i, Role.FILL, round=self.canvas.step))
        return self._drawn[i]

    def drew(self, i: int, token: int) -> bool:
        """True if this token was drawn for a place at this look."""
        return i in self._drawn and self._drawn[i].token == token

    def settle(self, i: int, drawn: Drawn, told: Law | None = None) -> None:
        """Have another token go into a place than the one that would have been drawn, with the law it came from.

        `told` is the model's own law, if that is another than this look told.
        """
        self._drawn[i], self._laws[i] = drawn, drawn.law
        if told is not None:
            self._told[i] = told

    def own(self, i: int) -> Law:
        """The model's own law of what goes into a place."""
        return self._told.get(i) or self.raw[i]

    def sure(self, i: int) -> float:
        """The model's own probability of the token that was drawn for a place."""
        token = self.preview(i).token
        peak = self.peak(i)
        return peak.p if token == peak.token else self.raw[i][token]

    @cached_property
    def random_order(self) -> Mapping[int, int]:
        """Every hole's place in a random order of them all, drawn once per look; all orders are equally likely."""
        order: list[int] = []
        for n, i in enumerate(self.holes):  # each goes before, between or behind those left of it
            order.insert(_even(n + 1).draw(self.chance, At(i, Role.ORDER, round=self.canvas.step)).token, i)
        return {i: lot for lot, i in enumerate(order)}

    def before_end(self, ends: Collection[int]) -> DenoiseState:
        """The same look up to the hole where the text ends by the best guess of it and of all holes behind it.

        What would be filled behind that hole is cut off by it, or known better once it holds something else.
        """
        run = [*takewhile(lambda i: self.peak(i).token in ends, reversed(self.holes))] if ends else []
        return self.within(self.canvas.window[0], run[-1] + 1) if len(run) > 1 else self

    def within(self, low: int, high: int) -> DenoiseState:
        """The same look, at fewer places."""
        near = Field({i: law for i, law in self.raw.items() if low <= i < high}, self.raw.rows, self.raw.final)
        near.__dict__["peaks"] = {i: peak for i, peak in self.raw.peaks.items() if low <= i < high}
        canvas = self.canvas.within(low, high)
        return DenoiseState(canvas, near, self.warp, self.chance, self.renewed, self._drawn, self._laws, self._told)


def _state(warp: Warp, tokens: Sequence[int], prompt: int, place: int) -> Any:
    """The state of a warp at a place of a canvas.

    A warp that steps from token to token says by `beside` what it is there; guards refuse those that cannot.
    """
    if isinstance(warp, Both):
        return _state(warp.first, tokens, prompt, place), _state(warp.second, tokens, prompt, place)
    if isinstance(warp, Beside):
        return warp.beside(tokens, prompt, place)
    return None if type(warp).start is Warp.start else warp.start(tokens[:prompt])


@cache
def _even(size: int) -> Law:
    return Law(torch.zeros(size, dtype=torch.float64))
