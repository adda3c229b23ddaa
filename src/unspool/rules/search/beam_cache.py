"""The texts that a search keeps in the model at the same time, and the rows that it may still spend on them."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from ...core.asks import Ask, GiveWay, Keep, Score, Scores
from ...core.law import Law, chosen
from ...core.option import expect, whole
from ...core.tree import NOTHING, Tree
from .search_text import Text


class BeamCache:
    """Forks and drops texts as a search asks for them, so that what they have in common is stored and read once.

    A row is one token that the model reads. Counted are those that the search needs beyond the prompt, whatever a cache
    happens to hold, so that a text never depends on what was decoded before. `rows` bounds them; 0 is no bound.
    """

    def __init__(self, rows: int = 0) -> None:
        expect(whole(rows, 0), "rows", rows, "a whole number of model rows, 0 for no limit")
        self._limit: float = rows or math.inf
        self._known: dict[tuple[int, ...], int] = {}  # what is kept, and as which leaf
        self.spent = self.forwards = 0

    def affords(self, live: Sequence[Text], further: int = 0) -> bool:
        """Whether the budget has room for scoring these, each with so many tokens more."""
        return bool(live) and self.spent + self._cost(live) + further * len(live) <= self._limit

    def score(self, live: Sequence[Text], held: Iterable[Text] = ()) -> Generator[Ask, Any, list[Law]]:
        """The model's law after each of these texts; those that are held can be gone on with later."""
        yield self._keep(live, [self._read(text) for text in held])
        scores: Scores = yield Score()
        return (yield from self._owned(scores, live))

    def told_by(self, model: str, live: Sequence[Text]) -> Generator[Ask, Any, list[Law]]:
        """The law of another model after each of these texts, which have just been scored."""
        scores: Scores = yield Score(by=model)
        return (yield from self._owned(scores, live))

    def _owned(self, scores: Scores, live: Sequence[Text]) -> Generator[Ask, Any, list[Law]]:
        """The laws after these texts, each by itself."""
        own = dict[tuple[int, ...], Law]()
        for text in live:
            if text.tokens not in own:
                own[text.tokens] = _own(scores.leaf[self._known[text.tokens]])
                yield GiveWay()
        return [own[text.tokens] for text in live]

    def after(self, live: Sequence[Text], tokens: Sequence[int]) -> Generator[Ask, Any, list[Law]]:
        """The model's law after each of these texts with the same tokens behind it, which are not kept; all else is."""
        yield self._keep(live, self._known)
        tree, ends = NOTHING, {}
        for text in dict.fromkeys(text.tokens for text in live):
            tree, ends[text] = _hung(tree, ~self._known[text], tokens)
        self.spent += len(tree)
        scores: Scores = yield Score(tree)
        return [scores.law(ends[text.tokens]) for text in live]

    def along(
        self, live: Sequence[Text], chains: Sequence[Sequence[tuple[int, ...]]], held: Iterable[Text] = ()
    ) -> Generator[Ask, Any, list[list[list[Law]]]]:
        """For each text and each of its chains the laws of the chain's tokens, which are not kept; what is held is."""
        yield self._keep(live, [self._read(text) for text in held])
        tree, kids, nodes = NOTHING, dict[tuple[int, int], int](), list[list[list[int]]]()
        for text, own in zip(live, chains, strict=True):
            nodes.append([])
            for chain in own:
                way = [~self._known[text.tokens]]
                for token in chain[:-1]:
                    if (way[-1], token) not in kids:
                        tree, kids[way[-1], token] = _hung(tree, way[-1], (token,))
                    way.append(kids[way[-1], token])
                nodes[-1].append(way)
        self.spent += len(tree)
        scores: Scores = yield Score(tree)
        return [[[scores.law(node) for node in way] for way in own] for own in nodes]

    def _keep(self, live: Sequence[Text], held: Iterable[tuple[int, ...]]) -> Keep:
        self.spent += self._cost(live)
        self.forwards += 1
        self._known = self._known or {(): 0}
        tree, nodes, extra = NOTHING, list[int](), list[int | None]()
        wanted = list(dict.fromkeys([*(text.tokens for text in live), *held]))
        for tokens in wanted:
            size = self._shared(tokens)
            tree, node = _hung(tree, ~self._known[tokens[:size]], tokens[size:-1])
            nodes.append(node)
            extra.append(tokens[-1] if size < len(tokens) else None)
        self._known = {tokens: leaf for leaf, tokens in enumerate(wanted)}
        return Keep(tree, tuple(nodes), tuple(extra))

    def _cost(self, live: Sequence[Text]) -> int:
        if not self._known:
            return 1
        return sum(len(tokens) - self._shared(tokens) for tokens in {text.tokens for text in live})

    def _shared(self, tokens: tuple[int, ...]) -> int:
        """How much of a text is kept as a leaf: all of it, or all but its last token, if it came straight from one."""
        return next(size for size in range(len(tokens), -1, -1) if tokens[:size] in self._known)

    def _read(self, text: Text) -> tuple[int, ...]:
        """As much of a text as the model has read: its last token may not have been needed yet."""
        return text.tokens[: self._shared(text.tokens)] if self._known else ()


def _hung(tree: Tree, node: int, tokens: Sequence[int]) -> tuple[Tree, int]:
    """The tree with a chain of these tokens below a node, and the last of them."""
    for token in tokens:
        tree, node = tree.grow(chosen(token), node)
    return tree, node


def _own(law: Law) -> Law:
    """The law by itself: a row of a forward's scores would hold on to all of them."""
    scores = law.scores
    return law if scores.untyped_storage().nbytes() <= scores.nbytes else Law(scores.clone())
