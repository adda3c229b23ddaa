"""A causal model that is told a text in another model's tokens and goes on in its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ...core.asks import Scores
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.tree import ROOT, Tree
from ..engine.contracts import Causal, ScoreRequest, Session

RETOLD = "retold"


class Retokeniser(Protocol):
    """How texts pass between outer and inner tokens."""

    @property
    def size(self) -> int:
        """Number of outer tokens."""

    def read(self, text: Sequence[int]) -> tuple[int, ...]:
        """The inner tokens of a whole prompt; at least one."""

    def follow(self, inner: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
        """The inner tokens of a text that goes on with outer ones; its last few may be cut anew."""

    def retell(self, text: Sequence[int], written: Sequence[int]) -> tuple[int, ...]:
        """The outer tokens of what was written in inner ones after an outer text."""


class RetokenisedDraft:
    """A causal model whose texts are kept in outer tokens, and whose trees and laws are in inner ones.

    What it wants to say can be had in outer tokens: the wanted "retold" has a row per node, then one for the leaf, each
    with the path and the most probable inner token after it, filled up with −1. The inner text is cut anew near the end
    in every round, as the inner model itself would have cut it, so that it never drifts from what it was trained on.
    """

    def __init__(self, model: Causal, telling: Retokeniser) -> None:
        self.model, self.telling = model, telling
        self.vocab, self.context, self.room = telling.size, model.context, model.room

    def open(self, text: Sequence[int], owner: str = "") -> RetokenisedSession:
        return RetokenisedSession(self.model, self.telling, [list(text)], owner)

    def forget(self) -> None:
        self.model.forget()

    def score(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        inner = [ScoreRequest(_session(ask).caught_up(), ask.tree, _others(ask.want)) for ask in asked]
        return [self._told(ask, scores) for ask, scores in zip(asked, self.model.score(inner), strict=True)]

    def _told(self, ask: ScoreRequest, scores: Scores) -> Scores:
        if RETOLD not in ask.want:
            return scores
        text, rows = _session(ask).leaves[0], []
        for node in (*range(len(ask.tree)), ROOT):
            written = (*ask.tree.tokens(ask.tree.path(node)), scores.law(node).best)
            rows.append(torch.tensor(self.telling.retell(text, written), dtype=torch.long))
        told: Tensor = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
        return Scores(scores.after, scores.leaf, {**scores.hidden, RETOLD: told}, scores.rows)


class RetokenisedSession:
    """The outer texts of one request, and the inner model's session at as much of the first as it was told."""

    def __init__(self, model: Causal, telling: Retokeniser, leaves: list[list[int]], owner: str) -> None:
        self._model, self._telling, self.leaves, self._owner = model, telling, leaves, owner
        self._inner: Session | None = None
        self._tokens: tuple[int, ...] = ()  # the inner text
        self._told = 0  # how many outer tokens it tells

    def caught_up(self) -> Session:
        """The inner session at the whole text."""
        if len(self.leaves) > 1:
            raise BadRequest("a draft model that writes in its own tokens follows one text, and this one was forked")
        text = self.leaves[0]
        new = text[self._told :]
        tokens = self._telling.follow(self._tokens, new) if self._told else self._telling.read(text)
        old, size = self._inner, len(self._tokens)
        if old is not None and tokens[:size] == self._tokens:
            if tokens[size:]:
                chain = Tree.chain([chosen(x) for x in tokens[size:]])
                old.keep(chain, [len(chain) - 1], [None])
        else:
            # before the old one closes, so that it can take over its cache
            self._inner = self._model.open(tokens, self._owner)
            if old is not None:
                old.close()
        self._tokens, self._told = tokens, len(text)
        assert self._inner is not None
        return self._inner

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        ends = [() if token is None else (token,) for token in extra]
        new = [(tree.leaf(n), (*tree.tokens(tree.path(n)), *end)) for n, end in zip(nodes, ends, strict=True)]
        if len(new) == len(self.leaves) == 1:
            self.leaves[0] += new[0][1]
            return
        self.leaves = [[*self.leaves[r], *tokens] for r, tokens in new]
        self.close()
        self._tokens, self._told = (), 0

    def fork(self) -> RetokenisedSession:
        return RetokenisedSession(self._model, self._telling, [list(leaf) for leaf in self.leaves], self._owner)

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None


def _session(ask: ScoreRequest) -> RetokenisedSession:
    assert isinstance(ask.session, RetokenisedSession)
    return ask.session


def _others(want: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in want if name != RETOLD)
