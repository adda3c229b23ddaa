"""Models that are tables: small enough to enumerate, exact in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..asks import Field, Scores
from ..canvas import HOLE, Canvas
from ..law import Law
from ..tree import Tree
from .session import Asked, Session, tops_of


class Table:
    """A causal model given by a function from context to weights; its joint law also answers looks."""

    context = None
    room = None

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

    def open(self, text: Sequence[int]) -> TableSession:
        """A session that remembers its leaves as texts."""
        return TableSession([tuple(text)])

    def forget(self) -> None:
        """Nothing is kept."""

    def score(self, asked: Sequence[Asked]) -> list[Scores]:
        """One law per node and per leaf, read from the table."""
        self.forwards += 1
        return [self._score(ask.session, ask.tree, tops_of(ask.want)) for ask in asked]

    def look(self, canvases: Sequence[Canvas]) -> list[Field]:
        """The conditional law of every hole under the joint law that the table defines."""
        return [self._joint(canvas).look([canvas])[0] for canvas in canvases]

    def _joint(self, canvas: Canvas) -> Joint:
        given = canvas.tokens[: canvas.window[0]]
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

    def _score(self, session: Session, tree: Tree, best: int) -> Scores:
        assert isinstance(session, TableSession)
        after = [self.law(session.text(tree, node)) for node in range(len(tree))]
        leaf = [self.law(text) for text in session.leaves]
        text = session.leaves[0] if best else ()
        tops = {i: [(x, self.law(text[:i])[x]) for x in self.law(text[:i]).top(best)] for i in range(1, len(text))}
        return Scores(after, leaf, rows=len(after) + len(leaf), tops=tops)


class TableSession:
    """The kept leaves of a text, as texts."""

    def __init__(self, leaves: list[tuple[int, ...]]) -> None:
        self.leaves = leaves

    def text(self, tree: Tree, node: int) -> tuple[int, ...]:
        """The whole text that ends in a node, or in leaf ~r."""
        return self.leaves[tree.leaf(node)] + tree.tokens(tree.path(node))

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        """Make these texts the leaves."""
        ends = [() if token is None else (token,) for token in extra]
        self.leaves = [self.text(tree, node) + end for node, end in zip(nodes, ends, strict=True)]

    def fork(self) -> TableSession:
        """The same leaves again."""
        return TableSession(list(self.leaves))

    def close(self) -> None:
        """Nothing to free."""


class Joint:
    """An any-order model given by the joint law of whole texts: its conditionals are exact."""

    def __init__(self, vocab: int, law: Mapping[tuple[int, ...], float]) -> None:
        self.vocab, self.law = vocab, dict(law)
        self._seen: dict[tuple[int, ...], Field] = {}

    def look(self, canvases: Sequence[Canvas]) -> list[Field]:
        """The conditional law of every hole, given all filled positions."""
        return [self._look(canvas) for canvas in canvases]

    def _look(self, canvas: Canvas) -> Field:
        if canvas.tokens not in self._seen:
            self._seen[canvas.tokens] = {i: self._conditional(canvas, i) for i in canvas.holes}
        return self._seen[canvas.tokens]

    def _conditional(self, canvas: Canvas, i: int) -> Law:
        weights = [0.0] * self.vocab
        for text, mass in self.law.items():
            if all(known in (HOLE, x) for known, x in zip(canvas.tokens, text, strict=True)):
                weights[text[i]] += mass
        return Law.of(weights)
