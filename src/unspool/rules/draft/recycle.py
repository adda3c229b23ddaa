"""Token recycling: the target's own runners-up of earlier rounds are what may come next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Generic, TypeAlias, TypeVar

from ...core.asks import Scores, Tops
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.law import Drawn, chosen
from ...core.tree import ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Memory, Proposing, Source
from ...loops.speculate import Speculate

# How many children each node of the paper's template has, level by level: a node is the path of its ranks.
KIDS = """
:8
0:8 1:4 2:3 3:2 4:1 5:1 6:1 7:1
00:8 01:3 02:2 03:1 04:1 05:1 06:1 07:1 10:2 11:1 20:1 30:1 40:1 50:1
000:5 001:2 002:1 003:1 004:1 010:1 020:1 100:1 200:1 300:1
0000:3 0001:1 0002:1 0010:1 0100:1 1000:1
00000:2 00010:1
"""
TEMPLATE = {path: int(kids) for path, kids in (node.split(":") for node in KIDS.split())}


def paths(template: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """The nodes of a template as paths of ranks, the most promising first, and parents always before children.

    A node is worth Π 0.6 / (1 + rank): a guess of ours, for budgets smaller than the template.
    """
    nodes = [(*map(int, above), rank) for above, kids in template.items() for rank in range(kids)]

    def cost(path: tuple[int, ...]) -> float:
        worth = 1.0
        for rank in path:
            worth *= 0.6 / (1 + rank)
        return -worth

    return tuple(sorted(nodes, key=lambda path: (cost(path), len(path), path)))


PATHS = paths(TEMPLATE)


@lru_cache(maxsize=8)
def steps(paths: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, int], ...]:
    """For each path the number of the one above it, −1 for the root, and the rank of its last step."""
    number = {path: i for i, path in enumerate(paths)} | {(): ROOT}
    return tuple((number[path[:-1]], path[-1]) for path in paths)


Row: TypeAlias = Sequence[tuple[int, float]]
Key = TypeVar("Key")


class RowMemory(Memory, Generic[Key]):
    """The `width` likeliest next tokens after each of at most `most` keys, as last scored.

    Give one to a drafter to let requests learn from each other; without one, each request has its own. If there are too
    many keys, the eighth that was met first goes.
    """

    def __init__(self, width: int = 8, most: int = 1 << 18) -> None:
        if width < 1 or most < 1:
            name = type(self).__name__
            raise BadRequest(f"{name}(width={width}, most={most}) cannot be used; expected both from 1 on")
        self.width, self.most = width, most
        self._rows: dict[Key, Row] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def state(self) -> dict[Key, list[tuple[int, float]]]:
        with self._lock:
            return {key: list(row) for key, row in self._rows.items()}

    def restore(self, state: dict[Key, list[tuple[int, float]]]) -> None:
        rows = [[(int(x), float(p)) for x, p in row[: self.width]] for row in state.values()]
        self._note([*state], rows)

    def _note(self, keys: Sequence[Key], rows: Sequence[Row]) -> None:
        with self._lock:
            self._rows.update(zip(keys, rows, strict=True))
            if len(self._rows) > self.most:
                for old in [*islice(self._rows, len(self._rows) - self.most + self.most // 8)]:
                    del self._rows[old]


class Successors(RowMemory[int]):
    """For each token the likeliest next ones when it was last scored."""

    def after(self, token: int) -> tuple[int, ...]:
        """The likeliest next tokens, best first; none if the token was never scored."""
        return tuple(x for x, _ in self.row(token))

    def row(self, token: int) -> Row:
        """The same with their weights, as they were scored."""
        return self._rows.get(token, ())

    def put(self, tokens: Sequence[int], rows: Sequence[Row]) -> None:
        """Take note of the likeliest next tokens after each of these; of several for one token the last one stands."""
        self._note(tokens, rows)


@claims(
    SEED,
    trials=lambda _: [Speculate(Recycle(), budget=2), Speculate(Recycle(), budget=4)],
    paper="2408.08696",
    systems=("Token Recycling",),
)
@dataclass(frozen=True)
class Recycle(Draft):
    """Fill a fixed tree with the target's likeliest successors of each token, as they were when it was last scored.

    token(node) = successors(token(parent))[rank]; every scored node, rejected or not, renews the row of its token, the
    last of equal tokens in the order of the tree. A token that was never scored has no children, where the paper
    drafts token 0. `paths` is the paper's template of 80 nodes, taken in its order until the budget is spent.

    Claim: SEED under sample matching. Cost: one top-k over the scored nodes and one copy to the host per round; `width`
    numbers per token that was seen.
    """

    paths: tuple[tuple[int, ...], ...] = PATHS
    width: int = 8
    shared: Successors | None = None

    @property
    def warm(self) -> int:
        return 0 if self.shared is None else len(self.shared)

    def memory(self, most: int) -> Successors:
        return Successors(self.width, most)

    def sharing(self, memory: Successors) -> Draft:
        return replace(self, shared=memory)

    def begin(self, prefix: Prefix) -> Source:
        rows = Successors(self.width) if self.shared is None else self.shared
        return Recycled(steps(self.paths), rows, prefix.text[-1])


class Recycled(Source):
    """The rows of one request, and the last token of its text."""

    listens = True

    def __init__(self, steps: tuple[tuple[int, int], ...], rows: Successors, last: int) -> None:
        self.steps, self.rows, self.last = steps, rows, last

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        rows = self.rows
        filled: list[tuple[int, Row] | None] = []
        drawn: list[Drawn] = []
        parent: list[int] = []
        root = ROOT, rows.row(prefix.text[-1])
        for above, rank in self.steps:
            if len(drawn) >= budget:
                break
            place = root if above < 0 else filled[above]
            if place is None or rank >= len(place[1]):
                filled.append(None)
                continue
            token = place[1][rank][0]
            filled.append((len(drawn), rows.row(token)))
            drawn.append(chosen(token))
            parent.append(place[0])
        return Tree(tuple(drawn), tuple(parent))

    def told(self, text: tuple[int, ...], tops: Tops) -> None:
        known = sorted(tops.items())
        self.rows.put([text[place - 1] for place, _ in known], [best[: self.rows.width] for _, best in known])

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        self.rows.put([self.last, *(x for x, _ in tree.drawn)], scores.best(self.rows.width))  # the one sync
        self.last = prefix.text[-1]
