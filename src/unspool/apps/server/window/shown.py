"""A method that somebody looks at: what it asks, hears and emits is handed on, and otherwise nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ....core.asks import Ask, Decoding, Done
from ....core.chance import Chance
from ....core.claim import Branching, Method, fit, texts_of
from ....core.stop import Stop
from ....core.warp.warp import Warp


@dataclass(frozen=True)
class TextObserver:
    """Who looks at one text: `begun` is told what it goes on from, `asked` every ask before it is answered, `heard`
    every answer, `ended` the end."""

    begun: Callable[[tuple[int, ...], Warp], None]
    asked: Callable[[Ask], None]
    heard: Callable[[Ask, Any], None]
    ended: Callable[[Done], None]


@dataclass(frozen=True)
class Shown(Branching):
    """A method with one who looks; for one text, as whoever looks keeps its place in it."""

    method: Method
    look: TextObserver

    def fit(self, vocabulary: Any) -> Shown:
        """With the method made to fit this vocabulary."""
        made = self.method
        return replace(self, method=fit(made, vocabulary))

    @property
    def texts(self) -> int:
        """How many texts it goes on with at the same time."""
        return texts_of(self.method)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        """Decode after `text` until `stop`, watched."""
        decoding = self.method(text, chance, warp, stop)
        self.look.begun(text, warp)
        try:
            reply: Any = None
            while True:
                ask = decoding.send(reply)
                self.look.asked(ask)
                reply = yield ask
                self.look.heard(ask, reply)
        except StopIteration as end:
            done: Done = end.value
            self.look.ended(done)
            return done
        finally:
            decoding.close()
