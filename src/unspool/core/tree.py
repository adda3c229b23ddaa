"""Drafts as trees: tokens with parents and the laws they came from. A chain is a tree; no draft is the empty tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .law import Drawn

ROOT = ~0  # the only leaf of a text that has not been forked
FEW = 16  # nodes that are sooner looked through than sorted by their parents


@dataclass(frozen=True)
class Tree:
    """Drafted tokens below the kept leaves of a text.

    `parent[i] < i` is a node, or `~r` for the r-th kept leaf. Siblings stand in the order in which they were drawn.
    `sure[i]` is how likely the drafter thinks node i is to stand if its parent does, where it says so at all; it helps
    to choose among nodes and is never part of a rule.
    """

    drawn: tuple[Drawn, ...] = ()
    parent: tuple[int, ...] = ()
    sure: tuple[float, ...] = field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.drawn)

    @property
    def guesses(self) -> int:
        """How many of its nodes guess a token; a hole, of number −1, does not."""
        return sum(drawn.token >= 0 for drawn in self.drawn)

    def grow(self, drawn: Drawn, under: int = ROOT) -> tuple[Tree, int]:
        """This tree with one more node below `under`, and the number of that node."""
        return Tree((*self.drawn, drawn), (*self.parent, under)), len(self.drawn)

    @staticmethod
    def chain(drawn: Sequence[Drawn], sure: Sequence[float] = ()) -> Tree:
        """The tree that is one path below the root."""
        return Tree(tuple(drawn), tuple(range(-1, len(drawn) - 1)), tuple(sure))

    @cached_property
    def _kids(self) -> dict[int, list[int]]:
        kids: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parent):
            kids.setdefault(parent, []).append(node)
        return kids

    def kids(self, node: int) -> list[int]:
        """The nodes directly below `node`, in draft order."""
        return self._kids.get(node, [])

    def child(self, node: int, token: int) -> int | None:
        """The first node directly below `node` that has this token, if there is one."""
        if len(self.parent) > FEW:
            return next((kid for kid in self.kids(node) if self.drawn[kid].token == token), None)
        for kid, parent in enumerate(self.parent):
            if parent == node and self.drawn[kid].token == token:
                return kid
        return None

    def end(self, tokens: Iterable[int]) -> int:
        """The node that these tokens lead to from the first leaf; they must have been drafted."""
        nodes = [ROOT]
        for token in tokens:  # of equal siblings only one may have what comes below
            below = [kid for node in nodes for kid in self.kids(node) if self.drawn[kid].token == token]
            if not below:
                raise ValueError(f"token {token} was not drafted below node {nodes[0]}")
            nodes = below
        return nodes[0]

    @cached_property
    def _depths(self) -> list[int]:
        depths: list[int] = []
        for parent in self.parent:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return depths

    def depth(self, node: int) -> int:
        """How many drafted tokens lead to `node`, itself included; 0 for a leaf."""
        return 0 if node < 0 else self._depths[node]

    def path(self, node: int) -> list[int]:
        """The nodes from below the leaf down to `node`."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.parent[node]
        return path[::-1]

    def leaf(self, node: int) -> int:
        """The number r of the kept leaf that `node` hangs from."""
        while node >= 0:
            node = self.parent[node]
        return ~node

    def within(self, depth: float) -> Tree:
        """The nodes no deeper than `depth`, in the same order; the tree itself if there is nothing to prune."""
        if len(self) <= depth or max(self._depths, default=0) <= depth:
            return self
        return self.only([node for node in range(len(self)) if self._depths[node] <= depth])

    def only(self, kept: Sequence[int]) -> Tree:
        """These nodes alone, in their order; of every node its parent must be among them too, or be a leaf."""
        number = {old: new for new, old in enumerate(kept)}
        parent = tuple(number[above] if (above := self.parent[node]) >= 0 else above for node in kept)
        sure = tuple(self.sure[node] for node in kept) if self.sure else ()
        return Tree(tuple(self.drawn[node] for node in kept), parent, sure)

    def tokens(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """The tokens of these nodes."""
        return tuple(self.drawn[node].token for node in nodes)


NOTHING = Tree()
NOBODY: frozenset[int] = frozenset()  # none of its nodes
