"""Static shapes: trees of which only the form is known, not yet the tokens; and Sequoia's, the best on average."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from ...core.cost import FREE, Cost
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


Option: TypeAlias = tuple[float, tuple[int, ...]]
"""What to expect below a reached node, and how many nodes each of its children has, itself included."""

NONE: Option = (float("-inf"), ())


def sequoia(rates: tuple[float, ...], nodes: int, deepest: int, cost: Cost = FREE, draft: float = 0.0) -> TreeShape:
    """The shape of at most `nodes` nodes and `deepest` levels with the most accepted tokens to expect.

    `rates[k]` is the probability that the k-th child of a reached node is the accepted one. These add up over
    siblings, so they are at most 1 together; measured as "accepted given that the elder ones were rejected", c_k, they
    are c_k · Π over j < k of (1 − c_j).

    F(l, m) = max over b of G(l, b, m);  G(l, b, m) = max over y of G(l, b−1, m−y) + rates[b−1] · (1 + F(l−1, y−1))

    With a measured `cost` and the time `draft` of one level, (l, m) is the pair that maximises
    (1 + F(l, m)) / (t(1 + m) + l · draft). Where the rates fall with k, `best_first` finds the same F for any m; the
    programme is also right where they do not.

    Cost: nodes² · deepest · len(rates) steps, once. Paper: 2402.12374.
    """
    if nodes < 1 or deepest < 1 or not rates or min(rates) < 0 or sum(rates) > 1 + 1e-9:
        raise BadRequest(
            f"sequoia with rates {rates}, {nodes} nodes and {deepest} levels cannot be used; "
            "expected rates from 0 on that add up to at most 1, and at least one node and one level"
        )

    best: list[list[Option]] = [[(0.0, ())] * (nodes + 1)]  # by levels, then by nodes
    for _ in range(deepest):
        children = row = best[0]
        for rate in rates:
            children = [_one_more(children, best[-1], rate, budget) for budget in range(nodes + 1)]
            row = [max(a, b, key=_value) for a, b in zip(row, children, strict=True)]
        best.append(row)

    def paths(levels: int, budget: int, above: Ranks) -> list[Ranks]:
        _, sizes = best[levels][budget]
        here = [(*above, k) for k in range(len(sizes))]
        return here + [path for k, own in enumerate(sizes) for path in paths(levels - 1, own - 1, here[k])]

    choices = [(levels, m) for levels in range(1, deepest + 1) for m in range(1, nodes + 1)]
    if cost is FREE and draft == 0:
        choices = [(deepest, nodes)]
    levels, budget = max(choices, key=lambda c: (1 + best[c[0]][c[1]][0]) / (cost(1 + c[1]) + c[0] * draft))
    return TreeShape.of(paths(levels, budget, ()))


def _one_more(elder: list[Option], under: list[Option], rate: float, budget: int) -> Option:
    """The best way to give one more child, with all that stands below it, a part of the budget."""
    options = [
        (elder[budget - own][0] + rate * (1 + under[own - 1][0]), (*elder[budget - own][1], own))
        for own in range(1, budget + 1)
    ]
    return max(options, key=_value, default=NONE)


def _value(option: Option) -> float:
    return option[0]
