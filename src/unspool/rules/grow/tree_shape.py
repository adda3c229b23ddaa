"""Static shapes: trees of which only the form is known, not yet the tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...core.errors import BadRequest

Ranks = tuple[int, ...]
"""A node of a shape: for every level the rank of the sibling to take, 0 for the first one drawn or most probable."""


@dataclass(frozen=True)
class TreeShape:
    """A static tree as a set of paths of sibling ranks, as Medusa writes its trees: (0,), (1,), (0, 0), …

    Every parent and every elder sibling of a node belongs to it too.
    """

    paths: frozenset[Ranks]

    def __post_init__(self) -> None:
        for path in self.paths:
            needed = [path[:-1]] if len(path) > 1 else []
            needed += [(*path[:-1], path[-1] - 1)] if path and path[-1] > 0 else []
            missing = next((other for other in needed if other not in self.paths), None)
            if not path or min(path) < 0 or missing is not None:
                lacks = f" but not {missing}" if missing is not None else ""
                raise BadRequest(
                    f"a shape with {path}{lacks} cannot be used; expected non-empty paths of ranks from 0 on, with "
                    "every parent and elder sibling of a path in the shape too"
                )

    @staticmethod
    def of(paths: Iterable[Iterable[int]]) -> TreeShape:
        """The shape with these paths."""
        return TreeShape(frozenset(tuple(path) for path in paths))

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def depth(self) -> int:
        """The length of its longest path."""
        return max(map(len, self.paths), default=0)

    def width(self, path: Ranks) -> int:
        """How many children the node at `path` has; () is the root."""
        count = 0
        while (*path, count) in self.paths:
            count += 1
        return count

    def expected(self, rates: tuple[float, ...]) -> float:
        """Accepted tokens to expect if the k-th child is accepted with rates[k]: Σ over nodes of Π rates."""
        total = 0.0
        for path in self.paths:
            p = 1.0
            for rank in path:
                p *= rates[rank] if rank < len(rates) else 0.0
            total += p
        return total
