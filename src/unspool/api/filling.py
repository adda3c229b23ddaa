"""How a canvas was filled: at which look each place got its token, how sure the model was, and what was taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..core.asks import TARGET, Ask, Decoding, Done, Emit, Look
from ..core.canvas import HOLE, Canvas, Field, Status
from ..core.chance import Chance
from ..core.claim import Branching, Method, texts_of
from ..core.stop import Stop
from ..core.warp.warp import Warp
from ..recipes.methods import fitted

if TYPE_CHECKING:
    from .lm import LM, Prompt
    from .settings import Settings
    from .writer import Output


@dataclass(frozen=True)
class Glance:
    """One look: the window that was worked on, the surest guess for each place, and the canvas after it.

    Places count from the first behind the prompt. `sure` has the model's probability of its best token, `given` that of
    the token which then stands there.
    """

    window: tuple[int, int]
    sure: dict[int, float]
    given: dict[int, float]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """One place of a finished text: its token, the look that filled it, and the model's own probability of it then.

    `before` are tokens that stood there and were taken back, by the look that put them there; `sure` is how probable
    the best guess was at every look at which nothing stood there.
    """

    token: int
    look: int
    p: float | None
    before: dict[int, int]
    sure: dict[int, float]


@dataclass(frozen=True)
class Filling:
    """A canvas as it was filled: all places of the text, and the windows that were worked on, one after the other."""

    places: list[Place]
    windows: list[tuple[int, int]]
    lines: list[tuple[int, ...]]  # what stood after each look, HOLE where nothing did

    def __str__(self) -> str:
        looks, revised = len(self.lines), sum(len(place.before) for place in self.places)
        each = len(self.places) / looks if looks else 0.0
        known = [place.p for place in self.places if place.p is not None]
        back = f"; {revised} taken back" if revised else ""
        sure = f"; the model gave them {fmean(known):.2f} on the mean when they were filled" if known else ""
        return f"{len(self.places)} tokens in {looks} looks, {each:.2f} a look{sure}{back}."


@dataclass
class CanvasWatcher:
    """Watches one text of a method that fills a canvas."""

    glances: list[Glance] = field(default_factory=list)
    _asked: list[tuple[Look, Field]] = field(default_factory=list)

    def over(self, method: Method) -> Method:
        """The method, watched."""
        return _Watched(method, self._heard)

    def _heard(self, ask: Ask, reply: Any) -> None:
        if isinstance(ask, Look) and ask.by == TARGET and not ask.trials and isinstance(reply, Field):
            self._asked.append((ask, reply))
        elif isinstance(ask, Emit) and ask.canvas is not None and ask.rounds:
            self._emitted(ask.canvas)

    def _emitted(self, canvas: Canvas) -> None:
        start, window = canvas.prompt, (canvas.prompt, len(canvas))
        stands = zip(canvas.tokens, canvas.status, strict=True)
        tokens = tuple(HOLE if status == Status.HOLE else token for token, status in stands)
        sure, given = dict[int, float](), dict[int, float]()
        for look, found in self._asked:  # a view may take several looks for one
            window = look.canvas.window
            for place in found:
                sure[place - start] = found.peaks[place].p
                if place < len(tokens) and tokens[place] != HOLE:
                    given[place - start] = found[place][tokens[place]]
        self.glances.append(Glance((window[0] - start, window[1] - start), sure, given, tokens[start:]))
        self._asked.clear()

    def filling(self, tokens: tuple[int, ...]) -> Filling:
        """What was seen, for a text of these tokens."""
        places = [self._place(i, token) for i, token in enumerate(tokens)]
        lines = [glance.tokens[: len(tokens)] for glance in self.glances]
        while len(lines) > 1 and lines[-1] == lines[-2]:  # looks behind the end of the text
            lines.pop()
        windows = list(dict.fromkeys(glance.window for glance in self.glances))
        return Filling(places, windows, lines)

    def _place(self, i: int, token: int) -> Place:
        stood, before, look, p, sure = HOLE, dict[int, int](), 0, None, dict[int, float]()
        for number, glance in enumerate(self.glances, 1):
            now = glance.tokens[i] if i < len(glance.tokens) else HOLE
            if stood == HOLE and i in glance.sure:
                sure[number] = glance.sure[i]
            if now != stood:
                if stood != HOLE:
                    before[look] = stood
                look, stood = number, now
                p = glance.given.get(i)
        return Place(token, look, p if stood == token else None, before, sure)


@dataclass(frozen=True)
class _Watched(Branching):
    method: Method
    note: Callable[[Ask, Any], None]

    @property
    def texts(self) -> int:
        return texts_of(self.method)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        decoding = self.method(text, chance, warp, stop)
        try:
            reply: Any = None
            while True:
                ask = decoding.send(reply)
                reply = yield ask
                self.note(ask, reply)
        except StopIteration as end:
            done: Done = end.value
            return done
        finally:
            decoding.close()


def filled(lm: LM, prompt: Prompt, settings: Settings, method: str | Method) -> tuple[Output, Filling | None]:
    """A text, and how its canvas was filled; None of a method that fills none."""
    watch = CanvasWatcher()
    output = lm.generate(lm.encode(prompt), settings, watch.over(fitted(method, lm.vocabulary, lm.models())))
    return output, watch.filling(output.tokens) if watch.glances else None
