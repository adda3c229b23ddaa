"""A job: one request inside the engine."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ..asks import Ask, Check, Decoding, Done, Emit, Write
from ..trace import Trace
from ..tree import NOTHING
from ..verify.walk import walk
from .session import Session

WAITING, LIVE, ENDED = "waiting", "live", "ended"


@dataclass(eq=False)
class Job:
    """One request inside the engine: what it emitted so far, how it ended, and its trace."""

    decoding: Decoding
    text: tuple[int, ...]
    room: int
    trace: Trace
    state: str = WAITING
    emitted: deque[Emit] = field(default_factory=deque)
    done: Done | None = None
    error: Exception | None = None
    sessions: dict[str, Session] = field(default_factory=dict)
    ask: Ask | None = None
    reply: Any = None
    key: int = field(init=False)  # the same for the same prompt
    began: float = 0.0
    laws: bool = True  # whether anybody looks at the laws of what is emitted
    patience: float = math.inf  # seconds after which somebody wants to see what was written

    def __post_init__(self) -> None:
        self.key = hash(self.text)

    @property
    def check(self) -> Check | None:
        """What it asks, as a check: writing on is to check nothing, under the walk."""
        if isinstance(self.ask, Write):
            return Check(NOTHING, self.ask.prefix, walk, self.ask.chance)
        return self.ask if isinstance(self.ask, Check) else None

    def result(self) -> Done:
        """How it ended, or the error that ended it."""
        if self.error is not None:
            raise self.error
        if self.done is None:
            raise RuntimeError("this request has not ended yet")
        return self.done
