"""A drafter driven by hand: what it proposes, if somebody answers for the draft model."""

from __future__ import annotations

from collections.abc import Callable

from unspool.core.asks import Draw, GiveWay, Score, Scores
from unspool.core.tree import Tree
from unspool.loops.drafter import Proposing


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
