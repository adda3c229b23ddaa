"""A causal model seen through another model's tokens, so that it can draft for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ...core.asks import Scores
from ...core.law import NEVER, Drawn, Law, chosen
from ...core.tree import Tree
from ..engine.contracts import Causal, ScoreRequest, Session


class Spelling(Protocol):
    """How one vocabulary's tokens are written with another's."""

    @property
    def size(self) -> int:
        """Number of outer tokens."""

    @property
    def shared(self) -> Mapping[int, int]:
        """Outer tokens that are one inner token, with that token."""

    def spell(self, token: int) -> tuple[int, ...]:
        """The inner tokens of an outer one; may be none."""

    def read(self, text: Sequence[int]) -> tuple[int, ...]:
        """The inner tokens of a whole prompt; at least one."""


class SharedVocabularyDraft:
    """A causal model whose texts, trees and laws are in the tokens of another vocabulary.

    Its law is the inner model's given that the next token is a shared one: scores of shared tokens stay, all others are
    impossible (token-level intersection, TLI, arXiv 2502.05202). It is an ordinary law, so whoever draws from it and
    carries it along stays exact. Tokens that are not shared, in what the target wrote, are spelt with inner tokens.
    """

    def __init__(self, model: Causal, spelling: Spelling) -> None:
        self.model, self.spelling = model, spelling
        self.vocab, self.context, self.room = spelling.size, model.context, model.room
        self._outer = torch.tensor(list(spelling.shared.keys()))
        self._inner = torch.tensor(list(spelling.shared.values()))

    def open(self, text: Sequence[int], owner: str = "") -> SharedVocabularySession:
        return SharedVocabularySession(self.model.open(self.spelling.read(text), owner), self.spelling)

    def forget(self) -> None:
        self.model.forget()

    def score(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        inner: list[ScoreRequest] = []
        ends: list[list[int]] = []
        for ask in asked:
            assert isinstance(ask.session, SharedVocabularySession)
            tree, end = spelt(ask.tree, self.spelling)
            inner.append(ScoreRequest(ask.session.inner, tree, ask.want))
            ends.append(end)
        answers = zip(inner, ends, self.model.score(inner), strict=True)
        return [self._scores(ask.tree, end, scores) for ask, end, scores in answers]

    def _scores(self, tree: Tree, ends: list[int], scores: Scores) -> Scores:
        rows = [end if end >= 0 else len(tree) + ~end for end in ends]
        rows += [len(tree) + r for r in range(len(scores.leaf))]
        hidden = {name: states[rows] for name, states in scores.hidden.items()}
        after = [WidenedLaw(scores.law(end), self) for end in ends]
        return Scores(after, [WidenedLaw(law, self) for law in scores.leaf], hidden, scores.rows)

    def widen(self, scores: Tensor) -> Tensor:
        """Scores of inner tokens as scores of outer ones."""
        if self._outer.device != scores.device:
            self._outer, self._inner = self._outer.to(scores.device), self._inner.to(scores.device)
        wide = torch.full((self.vocab,), NEVER, dtype=scores.dtype, device=scores.device)
        wide[self._outer] = scores[self._inner]
        return wide


class WidenedLaw(Law):
    """An inner law in outer tokens, made only when somebody looks at it."""

    def __init__(self, law: Law, by: SharedVocabularyDraft) -> None:
        self._law, self._by = law, by
        self._wide: Tensor | None = None

    @property
    def scores(self) -> Tensor:
        """The log-weights: the inner ones where a token is shared, impossible elsewhere."""
        if self._wide is None:
            self._wide = self._by.widen(self._law.scores)
        return self._wide


class SharedVocabularySession:
    """A session of the inner model that keeps texts in outer tokens."""

    def __init__(self, inner: Session, spelling: Spelling) -> None:
        self.inner, self.spelling = inner, spelling

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        inner, ends = spelt(tree, self.spelling)
        kept: list[int] = []
        for node, token in zip(nodes, extra, strict=True):
            end = ends[node] if node >= 0 else node
            for x in () if token is None else self.spelling.spell(token):
                inner, end = inner.grow(chosen(x), end)
            kept.append(end)
        self.inner.keep(inner, kept, [None] * len(kept))

    def fork(self) -> SharedVocabularySession:
        return SharedVocabularySession(self.inner.fork(), self.spelling)

    def close(self) -> None:
        self.inner.close()


def spelt(tree: Tree, spelling: Spelling) -> tuple[Tree, list[int]]:
    """A tree with every token spelt out, and where each of its nodes ends in it: a node, or ~r if nothing was spelt."""
    drawn: list[Drawn] = []
    parents: list[int] = []
    ends: list[int] = []
    for parent, (token, _) in zip(tree.parent, tree.drawn, strict=True):
        end = parent if parent < 0 else ends[parent]
        for x in spelling.spell(token):
            drawn.append(chosen(x))
            parents.append(end)
            end = len(drawn) - 1
        ends.append(end)
    return Tree(tuple(drawn), tuple(parents)), ends
