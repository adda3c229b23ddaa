"""Token recycling: the target's own runners-up of earlier rounds are what may come next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..asks import Scores
from ..chance import Chance
from ..claim import SEED, Method, claims
from ..errors import BadRequest
from ..law import Drawn, Law
from ..tree import ROOT, Tree
from ..warp.warp import Prefix
from .draft import Proposing, Source

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


class Successors:
    """For each token the `width` likeliest next ones when it was last scored; of at most `most` tokens, oldest out.

    Give one to `Recycle` to let requests learn from each other; without one, each request has its own.
    """

    def __init__(self, width: int = 8, most: int = 1 << 18) -> None:
        if width < 1 or most < 1:
            raise BadRequest(f"Successors(width={width}, most={most}) cannot be used; expected both from 1 on")
        self.width, self.most = width, most
        self._rows: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def after(self, token: int) -> tuple[int, ...]:
        """The likeliest next tokens, best first; none if the token was never scored."""
        return self._rows.get(token, ())

    def note(self, tokens: Sequence[int], laws: Sequence[Law]) -> None:
        """Take note of the laws after these tokens; of several for one token the last one stands."""
        last = dict(zip(tokens, laws, strict=True))
        scores = torch.stack([law.scores for law in last.values()])
        tops: list[list[int]] = scores.topk(min(self.width, scores.shape[1])).indices.tolist()  # the one sync
        with self._lock:
            for token, row in zip(last, tops, strict=True):
                self._rows[token] = tuple(row)
                self._rows.move_to_end(token)
            while len(self._rows) > self.most:
                self._rows.popitem(last=False)


def build(nodes: int = 24) -> Method:
    """Token recycling under the walk."""
    from ..decode.speculate import Speculate

    return Speculate(Recycle(), budget=nodes)


@claims(
    SEED,
    trials=lambda _: [build(nodes=2), build(nodes=4)],
    build=build,
    paper="2408.08696",
    systems=("Token Recycling",),
)
@dataclass(frozen=True)
class Recycle:
    """Fill a fixed tree with the target's likeliest successors of each token, as they were when it was last scored.

    token(node) = successors(token(parent))[rank]; every scored node, rejected or not, renews the row of its token, the
    last of equal tokens in the order of the tree. A token that was never scored has no children, where the paper
    drafts token 0. `paths` is the paper's template of 80 nodes, taken in its order until the budget is spent.

    Claim: SEED under the walk. Cost: one top-k over the scored nodes and one copy to the host per round; `width`
    numbers per token that was seen.
    """

    paths: tuple[tuple[int, ...], ...] = PATHS
    width: int = 8
    shared: Successors | None = None

    def begin(self, prefix: Prefix) -> Source:
        """Rows of this request's own, unless they are shared."""
        rows = Successors(self.width) if self.shared is None else self.shared
        return Recycled(self.paths, rows, prefix.text[-1])


class Recycled:
    """The rows of one request, and the last token of its text."""

    def __init__(self, paths: tuple[tuple[int, ...], ...], rows: Successors, last: int) -> None:
        self.paths, self.rows, self.last = paths, rows, last

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        """The template, filled as far as rows are known."""
        yield from ()
        filled: dict[tuple[int, ...], tuple[int, tuple[int, ...]]] = {(): (ROOT, self.rows.after(prefix.text[-1]))}
        drawn: list[Drawn] = []
        parent: list[int] = []
        for path in self.paths:
            if len(drawn) >= budget:
                break
            above = filled.get(path[:-1])
            if above is not None and path[-1] < len(above[1]):
                token = above[1][path[-1]]
                filled[path] = len(drawn), self.rows.after(token)
                drawn.append(Drawn(token, Law.point(token)))
                parent.append(above[0])
        return Tree(tuple(drawn), tuple(parent))

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Renew the row of every token that was scored."""
        self.rows.note([self.last, *(x for x, _ in tree.drawn)], [scores.leaf[0], *scores.after])
        self.last = prefix.text[-1]
