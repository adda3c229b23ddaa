"""Drafters and guards driven by hand: what they come to, if somebody answers for the draft model."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from unspool.core.asks import Ask, Draw, GiveWay, Score, Scores
from unspool.core.tree import Tree
from unspool.loops.drafter import Proposing

T = TypeVar("T")


def ended(steps: Generator[Ask, Any, T]) -> T:
    """What somebody comes to who asks for nothing, but gives way now and then."""
    try:
        while True:
            assert isinstance(next(steps), GiveWay)
    except StopIteration as end:
        found: T = end.value
        return found


def answered(asking: Proposing, score: Callable[[Score], Scores]) -> tuple[Tree, int]:
    """The tree, and how often scores were asked for; no device draws a chain."""
    asked, reply = 0, None
    while True:
        try:
            ask = asking.send(reply)
        except StopIteration as end:
            return end.value, asked
        if isinstance(ask, (Draw, GiveWay)):
            reply = None
            continue
        assert isinstance(ask, Score)
        asked += 1
        reply = score(ask)
