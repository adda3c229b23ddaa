"""Retrieval from a store of texts: draft the continuations that followed there most often, as a tree."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ...core.chance import Chance
from ...core.claim import SEED, Method, claims
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.tree import ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing
from ...loops.speculate import Speculate
from .store import DEEP, Store


def _trial() -> Method:
    return Speculate(Retrieve(Store([(0, 1, 0, 0, 1, 1, 0)]), Store([(1, 0, 1)]), least=1, depth=2), budget=3)


@claims(SEED, trials=lambda _: [_trial()], paper="2311.08252", systems=("REST", "CodeSwift (two stores)"))
@dataclass(frozen=True)
class Retrieve(Memoryless):
    """Find the longest end of the text, `span` to `least` tokens, in a store, and draft what followed most often.

    worth(path) = share of the places where the path followed; the budget goes to the worthiest paths, so parents are
    always drafted with their children. A `project` store, of the code at hand say, counts `favour` times as much, and
    after a `quiet` token, a line break say, nothing is asked: both are CodeSwift's (2502.17139) as its abstract lets
    one guess. Its cache of verified runs is not here; join with `suffixtree` for that.

    Claim: SEED under sample matching. Cost: a few bisections and up to `places` continuations of `depth` tokens per
    store.
    """

    store: Store
    project: Store | None = None
    favour: float = 2.0
    span: int = 16
    least: int = 2
    depth: int = 10
    places: int = 128
    quiet: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not (1 <= self.least <= self.span <= DEEP and min(self.depth, self.places) >= 1 and self.favour > 0):
            raise BadRequest(
                f"retrieve with span={self.span}, least={self.least}, depth={self.depth}, places={self.places}, "
                f"favour={self.favour} cannot be used; expected 1 ≤ least ≤ span ≤ {DEEP} and the others positive"
            )

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        worth = self.worth(prefix.text[-self.span :]) if prefix.text[-1] not in self.quiet else {}
        paths = sorted(worth, key=lambda path: (-worth[path], len(path)))[:budget]
        number = {(): ROOT} | {path: i for i, path in enumerate(paths)}
        drawn = tuple(chosen(path[-1]) for path in paths)
        return Tree(drawn, tuple(number[path[:-1]] for path in paths))

    def worth(self, tail: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        """How often each path followed, as a share of the places that were found."""
        worth: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for store, weight in ((self.store, 1.0), (self.project, self.favour)):
            if store is None:
                continue
            after = store.index.find(tail, self.least, self.depth, self.places).after
            for path in map(tuple, after):
                for n in range(1, len(path) + 1):
                    worth[path[:n]] += weight / len(after)
        return worth
