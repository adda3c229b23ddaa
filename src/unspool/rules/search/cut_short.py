"""A search that is cut short hands out the best that it has found."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Decoding, Done, Emit, OutOfTime
from ...core.chance import Chance
from ...core.claim import Method, overheard
from ...core.stop import Stop
from ...core.warp.warp import Warp
from .search_text import Text, said


@dataclass(frozen=True)
class CutShort:
    """The method itself; if its time is over before it has handed out anything, the best of what it tells it found.

    That is the first of the texts that its `watch` is told. A finished text keeps the reason it ended for.
    """

    method: Method

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        found: list[Text] = []
        decoding = overheard(self.method, found.extend)(text, chance, warp, stop)
        written, reply = False, None
        try:
            while True:
                ask = decoding.send(reply)
                written = written or (isinstance(ask, Emit) and bool(ask.tokens))
                reply = yield ask
        except StopIteration as end:
            done: Done = end.value
            return done
        except OutOfTime as late:
            decoding.close()  # it tells what it has found
            best = next((one for one in found if one.tokens), None)
            if written or best is None:
                raise late
            yield said(best, 0)
            return Done(best.tokens, best.reason or "time", best.trim)
        finally:
            decoding.close()
