"""A pool of phrases, what has followed a token, newest first; and trees, in which what phrases share stands once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from ...core.law import chosen
from ...core.tree import NOTHING, ROOT, Tree
from ...loops.drafter import Memory


class NgramPool(Memory):
    """For each token the `each` newest phrases of up to `length` tokens that followed it, for the `most` newest tokens.

    Sources of several requests may share one: it is bounded, the longest unused give way, and calls may come from any
    thread.
    """

    def __init__(self, length: int, each: int, most: int = 65536) -> None:
        self.length, self.each, self.most = length, each, most
        self._phrases: OrderedDict[int, list[tuple[int, ...]]] = OrderedDict()
        self._lock = Lock()

    def add(self, token: int, phrase: Sequence[int]) -> None:
        """Take note that this phrase followed this token; one that it begins or repeats makes room for it."""
        new = tuple(phrase[: self.length])
        if not new:
            return
        with self._lock:
            old = self._phrases.pop(token, [])
            kept = [p for p in old if p != new[: len(p)]]
            self._phrases[token] = [new, *kept][: self.each]
            while len(self._phrases) > self.most:
                self._phrases.popitem(last=False)

    def read(self, text: Sequence[int], start: int = 0) -> None:
        """Take note of every whole phrase of a text that ends at `start` or later."""
        for i in range(max(0, start - self.length), len(text) - self.length):
            self.add(text[i], text[i + 1 : i + 1 + self.length])

    def after(self, token: int) -> list[tuple[int, ...]]:
        """The phrases that followed this token, newest first."""
        with self._lock:
            return list(self._phrases.get(token, ()))

    def __len__(self) -> int:
        return len(self._phrases)

    def state(self) -> dict[int, list[tuple[int, ...]]]:
        with self._lock:
            return dict(self._phrases)

    def restore(self, state: dict[int, list[tuple[int, ...]]]) -> None:
        for token, phrases in state.items():
            for phrase in reversed(phrases):
                self.add(int(token), [int(x) for x in phrase])


class TreeBuilder:
    """Grows a tree text by text, from `tree` on; added tokens are chosen, not drawn, so their laws are point masses."""

    def __init__(self, budget: int, tree: Tree = NOTHING) -> None:
        self.budget = budget
        self._drawn, self._parent = list(tree.drawn), list(tree.parent)
        self._kids = {
            (p, d.token): i for i, (p, d) in reversed([*enumerate(zip(tree.parent, tree.drawn, strict=True))])
        }

    def __len__(self) -> int:
        return len(self._drawn)

    def add(self, tokens: Sequence[int], under: int = ROOT) -> list[int]:
        """The nodes of this text below `under`, new ones where there were none; fewer if the budget is spent."""
        nodes: list[int] = []
        for token in tokens:
            node = self._kids.get((under, token))
            if node is None:
                if len(self) >= self.budget:
                    break
                node = self._kids[under, token] = len(self)
                self._drawn.append(chosen(token))
                self._parent.append(under)
            nodes.append(node)
            under = node
        return nodes

    def tree(self) -> Tree:
        """The tree so far."""
        return Tree(tuple(self._drawn), tuple(self._parent))
