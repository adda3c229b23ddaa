"""A method that somebody looks at: what it asks, hears and emits is handed on, and otherwise nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...asks import Ask, Decoding, Done
from ...chance import Chance
from ...claim import Method
from ...methods import Branching, fitted, method
from ...stop import Stop
from ...warp.warp import Warp


@dataclass(frozen=True)
class Look:
    """Who looks at one text: `begun` is told what it goes on from, `asked` every ask before it is answered, `heard`
    every answer, `ended` the end."""

    begun: Callable[[tuple[int, ...], Warp], None]
    asked: Callable[[Ask], None]
    heard: Callable[[Ask, Any], None]
    ended: Callable[[Done], None]


@dataclass(frozen=True)
class Shown:
    """The method that `spec` names, with one who looks; for one text, as whoever looks keeps its place in it."""

    spec: str | Method
    look: Look

    def fit(self, vocabulary: Any) -> Shown:
        """With the method made to fit this vocabulary."""
        return replace(self, spec=fitted(self.spec, vocabulary))

    @property
    def texts(self) -> int:
        """How many texts it goes on with at the same time."""
        made = method(self.spec)
        return made.texts if isinstance(made, Branching) else 1

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        """Decode after `text` until `stop`, watched."""
        decoding = method(self.spec)(text, chance, warp, stop)
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
