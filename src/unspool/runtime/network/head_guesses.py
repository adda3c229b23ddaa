"""What a model's lookahead heads guess, from the hidden states of a forward."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...core.asks import Ahead
from ...core.law import unpacked
from ...core.tree import ROOT
from ..cache.forward_request import ForwardRequest
from ..cache.sequence import DraftNode
from .lookahead_heads import MedusaHeads


def looking(heads: MedusaHeads, requests: Sequence[ForwardRequest], count: int) -> Ahead:
    """What heads guess after any node or leaf, each when it is asked for; texts may grow in between."""
    states = {~r: request.leaf.hidden for r, request in enumerate(requests)}
    states |= {n: x.hidden for request in requests for n, x in request.answers.items() if isinstance(x, DraftNode)}
    return lambda node, token: heads.after(states[node], token, count)


def foresee(requests: Sequence[ForwardRequest], ahead: Tensor) -> None:
    """Note what heads guess after the last accepted token of each: [n, heads, 2k], as a step has told it."""
    for request, told in zip(requests, ahead[: len(requests)].tolist(), strict=True):
        request.ahead = unpacked(told)


def foresight(heads: MedusaHeads, request: ForwardRequest, node: int, token: int, count: int) -> Ahead:
    """What heads guess: known where the accepted path ends, if the step has told so many; else made of its states."""
    states, told = request.states, request.ahead
    ready = bool(told) and len(told[0]) == count
    rows = {n: 1 + x.order for n, x in request.answers.items() if isinstance(x, DraftNode)} | {ROOT: 0}
    assert states is not None
    return lambda *at: told if ready and at == (node, token) else heads.best(states[rows[at[0]]], at[1], count)
