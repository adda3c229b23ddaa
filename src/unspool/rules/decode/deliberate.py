"""A second thought: a text is written, what the model doubts of it is masked, and written again."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from ...core.asks import Ask, Decoding, Done, Emit, Look, OutOfTime
from ...core.canvas import Canvas, Field
from ...core.chance import Chance, Role
from ...core.claim import HEURISTIC, Method, claims, fit
from ...core.option import expect, real, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...loops.denoise import Denoise
from ...loops.guard import unguarded
from ...loops.unmasker import Unmask, View, look, suited
from ..unmask.confident import Confident
from ..unmask.unmask_trials import Brief
from .anyorder import mixed
from .refill import overheard, refilled

Passes: TypeAlias = Generator[Ask, Any, Sequence[Sequence[int]]]


class Doubt(Protocol):
    """What is to be written again: some places, then some others."""

    def __call__(self, canvas: Canvas, chance: Chance) -> Passes:
        """The places of each pass, after a look if it takes one."""


@dataclass(frozen=True)
class Least:
    """The `share` of tokens that are least likely where the model sees nothing of the text, all in one pass."""

    share: float = 0.3

    def __post_init__(self) -> None:
        expect(real(self.share, 0, 1), "deliberate:share", self.share, "a share from 0 to 1")

    def __call__(self, canvas: Canvas, chance: Chance) -> Passes:
        places = range(canvas.prompt, len(canvas))
        count = _share(self.share, len(places))
        if count == 0:
            return []
        field: Field = yield Look(canvas.masked(places), tuple(places))
        return [sorted(sorted(places, key=lambda i: field[i][canvas.tokens[i]])[:count])]


@dataclass(frozen=True)
class Scattered:
    """The `share` of tokens that lots fall on, all in one pass."""

    share: float = 0.3

    def __post_init__(self) -> None:
        expect(real(self.share, 0, 1), "deliberate:share", self.share, "a share from 0 to 1")

    def __call__(self, canvas: Canvas, chance: Chance) -> Passes:
        yield from ()
        places = range(canvas.prompt, len(canvas))
        lots = mixed(places, chance, Role.ACCEPT, canvas.step)
        return [sorted(lots[: _share(self.share, len(places))])]


@dataclass(frozen=True)
class Chunks:
    """All of the text in `count` pieces of one length, a pass for each: others are seen, earlier ones as rewritten."""

    count: int = 4

    def __post_init__(self) -> None:
        expect(whole(self.count, 1), "deliberate:chunks", self.count, "a whole number of pieces from 1 on")

    def __call__(self, canvas: Canvas, chance: Chance) -> Passes:
        yield from ()
        places = range(canvas.prompt, len(canvas))
        size = max(1, math.ceil(len(places) / self.count))
        return [places[n : n + size] for n in range(0, len(places), size)]


def _share(share: float, count: int) -> int:
    return math.floor(share * count + 0.5)


DOUBTFUL, SURE = Least(), Confident()
IN_THE_TEXT = ("token", "string")  # reasons to end that go with what is rewritten


def _trials(rule: type[Deliberate]) -> list[Method]:
    return [Brief(lambda size: rule(Denoise(Confident(0.0), size), Least(0.5), Confident(0.6)))]


@claims(
    HEURISTIC,
    shaped=False,
    trials=_trials,
    paper="2509.16622",
    systems=("Whisper-LLaDA (deliberation: random, low-confidence, semi-AR)",),
)
@dataclass(frozen=True)
class Deliberate:
    """Write a text by `first`, make holes where there is `doubt`, and fill these given all the rest.

    A text from elsewhere is `first=Given(tokens)`. Its length stays.

    Claim: HEURISTIC. A share of 0 returns the text; one chunk writes all anew at its length. It loses where the text
    has the wrong length, or where what stays is what was wrong. Cost: what `first` costs, one look at holes alone for
    the doubtful share, and the looks that fill again.
    """

    first: Method
    doubt: Doubt = DOUBTFUL
    unmask: Unmask = SURE
    view: View = look

    def fit(self, vocabulary: Any) -> Deliberate:
        first, unmask = fit(self.first, vocabulary), suited(self.unmask, vocabulary)
        view = suited(self.view, vocabulary)
        return replace(self, first=first, unmask=unmask, view=view)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        tail, warp = stop.start(), unguarded(warp, "deliberate")
        hypothesis = yield from overheard(self.first(text, chance, warp, stop))
        canvas = hypothesis.canvas(text)
        laws = dict(enumerate(zip(hypothesis.before, hypothesis.after, strict=True), len(text)))
        try:
            for places in (yield from self.doubt(canvas, chance)):
                holes = canvas.remask(places)
                canvas, new = yield from refilled(holes, self.unmask, self.view, warp, chance)
                laws |= new
        except OutOfTime:
            pass  # the first thought stands where there was no time for a second
        kept, reason, _, trim = stop.cut(tail, canvas.tokens[len(text) :])
        shown = [laws[i] for i in range(len(text), len(text) + len(kept))]
        before, after = [law for law, _ in shown], [law for _, law in shown]
        yield Emit(kept, before, after, rounds=0, canvas=canvas.fixed(0, len(canvas)))
        first = hypothesis.reason if hypothesis.reason not in IN_THE_TEXT else "length"  # which is the first thought's
        return Done(kept, reason or first, trim)
