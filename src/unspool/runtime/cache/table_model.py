"""Models that are tables: small enough to enumerate, exact in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch

from ...core.asks import Look, Scores
from ...core.canvas import HOLE, Canvas, Field
from ...core.law import Law
from ...core.tree import Tree
from ..engine.contracts import LookRequest, ScoreRequest, Session, guesses_of, hidden_of, tops_of


class Table:
    """A causal model given by a function from context to weights; its joint law also answers looks.

    Its hidden state after a text is the law there, whichever layer is asked for.
    """

    context = None
    room = None
    heads: Sequence[Table] = ()  # what looks ahead: tables of the first token that is not known, of the next one, …

    def __init__(self, vocab: int, weights: Callable[[tuple[int, ...]], Sequence[float]]) -> None:
        self.vocab, self.weights = vocab, weights
        self._laws: dict[tuple[int, ...], Law] = {}
        self._joints: dict[tuple[tuple[int, ...], int], Joint] = {}
        self.forwards = 0

    def law(self, text: tuple[int, ...]) -> Law:
        """The law after a text; the same object every time, so that its sums are made once."""
        if text not in self._laws:
            self._laws[text] = Law.of(self.weights(text))
        return self._laws[text]

    def open(self, text: Sequence[int], owner: str = "") -> TableSession:
        return TableSession([tuple(text)])

    def forget(self) -> None:
        """Nothing is kept."""

    def score(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        self.forwards += 1
        return [
            self._score(ask.session, ask.tree, tops_of(ask.want), guesses_of(ask.want), hidden_of(ask.want))
            for ask in asked
        ]

    def look(self, asked: Sequence[LookRequest]) -> list[Field]:
        self.forwards += 1
        return [self._joint(ask.look.canvas).field(ask.look) for ask in asked]

    def _joint(self, canvas: Canvas) -> Joint:
        given = canvas.tokens[: canvas.prompt]
        if (given, len(canvas)) not in self._joints:
            self._joints[given, len(canvas)] = Joint(self.vocab, dict(self._texts(given, 1.0, len(canvas))))
        return self._joints[given, len(canvas)]

    def _texts(self, text: tuple[int, ...], mass: float, size: int) -> Iterator[tuple[tuple[int, ...], float]]:
        if len(text) == size:
            yield text, mass
            return
        for token, p in enumerate(self.law(text).p.tolist()):
            if p > 0:
                yield from self._texts((*text, token), mass * p, size)

    def _score(self, session: Session, tree: Tree, best: int, guesses: int, wanted: Sequence[str]) -> Scores:
        assert isinstance(session, TableSession)
        after = [self.law(session.text(tree, node)) for node in range(len(tree))]
        leaf = [self.law(text) for text in session.leaves]
        text = session.leaves[0] if best else ()
        tops = {i: _best(self.law(text[:i]), best) for i in range(1, len(text))}
        now = TableSession(session.leaves)  # whose leaves stay as they are
        ahead = partial(self._ahead, now, tree, guesses) if guesses else None
        named = [name for name in wanted if name.startswith("hidden:")]
        states = {name: torch.stack([law.p for law in (*after, *leaf)]) for name in named}
        return Scores(after, leaf, states, rows=len(after) + len(leaf), tops=tops, ahead=ahead)

    def _ahead(self, session: TableSession, tree: Tree, k: int, node: int, token: int) -> list[list[tuple[int, float]]]:
        text = (*session.text(tree, node), token)
        return [_best(head.law(text), k) for head in self.heads]


class TableSession:
    """The kept leaves of a text, as texts."""

    def __init__(self, leaves: list[tuple[int, ...]]) -> None:
        self.leaves = leaves

    def text(self, tree: Tree, node: int) -> tuple[int, ...]:
        """The whole text that ends in a node, or in leaf ~r."""
        return self.leaves[tree.leaf(node)] + tree.tokens(tree.path(node))

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        ends = [() if token is None else (token,) for token in extra]
        self.leaves = [self.text(tree, node) + end for node, end in zip(nodes, ends, strict=True)]

    def fork(self) -> TableSession:
        return TableSession(list(self.leaves))

    def close(self) -> None:
        """Nothing to free."""


class Joint:
    """An any-order model given by the joint law of whole texts: its conditionals are exact."""

    def __init__(self, vocab: int, law: Mapping[tuple[int, ...], float]) -> None:
        self.vocab, self.law = vocab, dict(law)
        self._seen: dict[tuple[tuple[int, ...], int], Law] = {}

    def look(self, asked: Sequence[LookRequest]) -> list[Field]:
        return [self.field(ask.look) for ask in asked]

    def field(self, look: Look) -> Field:
        """The answer to one look; what was computed before is never out of date here."""
        tokens = look.canvas.tokens
        if look.along:
            laws = {i: self._law(_without(tokens, look.along[n:]), i) for n, i in enumerate(look.along)}
        else:
            laws = {i: self._law(_without(tokens, (i,)), i) for i in look.places}
        return Field(laws, rows=len(tokens))

    def _law(self, tokens: tuple[int, ...], place: int) -> Law:
        if (tokens, place) not in self._seen:
            self._seen[tokens, place] = self._conditional(tokens, place)
        return self._seen[tokens, place]

    def _conditional(self, tokens: tuple[int, ...], place: int) -> Law:
        weights = [0.0] * self.vocab
        for text, mass in self.law.items():
            if all(known in (HOLE, x) for known, x in zip(tokens, text, strict=False)):  # a cut canvas is shorter
                weights[text[place]] += mass
        return Law.of(weights)


def _best(law: Law, k: int) -> list[tuple[int, float]]:
    return [(token, law[token]) for token in law.top(k)]


def _without(tokens: tuple[int, ...], places: Sequence[int]) -> tuple[int, ...]:
    gone = set(places)
    return tuple(HOLE if i in gone else x for i, x in enumerate(tokens))
