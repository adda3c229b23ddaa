"""Foresight: what a model's heads guess of what one forward has grown."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...core.asks import Ahead, unpacked
from ...core.tree import ROOT
from ..cache.forward_request import Growth
from ..cache.sequence import Node
from ..engine.contracts import LAST
from .lookahead_heads import Heads


def looking(heads: Heads, growths: Sequence[Growth], count: int) -> Ahead:
    """What heads guess after any node or leaf, each when it is asked for; texts may grow in between."""
    states = {~r: growth.leaf.hidden[LAST] for r, growth in enumerate(growths)}
    states |= {n: x.hidden[LAST] for growth in growths for n, x in growth.answers.items() if isinstance(x, Node)}
    return lambda node, token: heads.best(states[node], token, count)


def foresee(growths: Sequence[Growth], ahead: Tensor) -> None:
    """Note what heads guess after the last accepted token of each: [n, heads, 2k], as a step has told it."""
    for growth, told in zip(growths, ahead[: len(growths)].tolist(), strict=True):
        growth.ahead = unpacked(told)


def foresight(heads: Heads, growth: Growth, node: int, token: int, count: int) -> Ahead:
    """What heads guess: known where the accepted path ends, if the step has told so many; else made of its states."""
    states, told = growth.states, growth.ahead
    ready = bool(told) and len(told[0]) == count
    rows = {n: 1 + x.order for n, x in growth.answers.items() if isinstance(x, Node)} | {ROOT: 0}
    assert states is not None
    return lambda *at: told if ready and at == (node, token) else heads.best(states[rows[at[0]]], at[1], count)
