"""A trie of guessed texts: what several guesses share is drafted once."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.law import chosen
from ...core.tree import NOTHING, ROOT, Tree


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
