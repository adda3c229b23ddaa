"""Draft more than is checked: of all drafts of a batch, those tokens are checked that most probably stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.asks import Share
from ...core.chance import Chance
from ...core.claim import LAW, claims
from ...core.option import expect, whole
from ...core.tree import Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source, check_drafter
from ...loops.speculate import Speculate
from ..verify.block import block
from ..verify.rejection import rejection
from .chain import DRAFT, Chain
from .composite import CompositeDraft, CompositeSource, proposed
from .rsd_c import RSDC

GUESS = 0.5  # how likely a chosen token stands of which its drafter says nothing


@claims(
    LAW,
    trials=lambda _: [
        Speculate(Tetris(Chain(2), 1), rejection, budget=2),
        Speculate(Tetris(Chain(2), 1), block, budget=2),
        Speculate(Tetris(RSDC((2, 1)), 2), rejection, budget=4),
    ],
    paper="2502.15197",
    systems=("TETRIS (nodes of a batch by confidence)", "Adaptive verification (vLLM)"),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class Tetris(CompositeDraft):
    """Draft with `draft`; of what all requests drafted, check the nodes of largest value, `nodes` each on the mean.

    The value of a node is the chance that the path to its parent stands, Π q(x_j), times how sure the draft is of what
    follows, max q. It does not look at the node's own token, and falls along every path; so no drawn token is dropped
    for what it is, whichever other request has the better drafts. A request that is sure gets more nodes than one that
    is not, and all get fewer where a row more costs more than it brings (the machine's t(n)). Requests share that may
    find each other's prompts in the cache; those of two clients of a server do not.

    Claim: LAW under rejection, as `draft` alone. Cost: that of `draft` for all of its nodes; the target checks fewer.
    """

    draft: Draft = Chain(8)  # noqa: RUF009  (frozen)
    nodes: int = 4

    def __post_init__(self) -> None:
        check_drafter("tetris:draft", self.draft)
        expect(whole(self.nodes, 0), "tetris:nodes", self.nodes, "0 or more nodes for each request; usual is 4")

    @property
    def parts(self) -> tuple[Draft, ...]:
        return (self.draft,)

    def holding(self, parts: tuple[Draft, ...]) -> Draft:
        return replace(self, draft=parts[0])

    def begin(self, prefix: Prefix) -> Source:
        return _Sharing(self.sources(prefix), self.nodes)


class _Sharing(CompositeSource):
    def __init__(self, sources: Sequence[Source], nodes: int) -> None:
        super().__init__(sources)
        self.nodes = nodes

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree: Tree = yield from proposed(self.sources[0], prefix, budget, chance)
        if not len(tree):
            return tree
        values = expected(tree)
        order = sorted(range(len(tree)), key=lambda node: (-values[node], node))
        count: int = yield Share(tuple(values[node] for node in order), self.nodes)
        return tree.only(sorted(order[:count]))


def expected(tree: Tree) -> list[float]:
    """How likely each node is to stand, as far as can be said without its own token where that was drawn.

    Never more than for its parent, or for an elder sibling, since a younger one is looked at when that was refused.
    """
    values: list[float] = []
    reach: dict[int, float] = {}  # of a node: how likely the path to it stands, its own token included
    left: dict[int, tuple[float, float]] = {}  # of a parent: how likely all its children so far fell, the least value
    for node, (parent, (token, law)) in enumerate(zip(tree.parent, tree.drawn, strict=True)):
        above = reach.get(parent, 1.0)
        refused, least = left.get(parent, (1.0, above))
        own, sure = (law[token], law[law.best]) if token >= 0 else (1.0, 1.0)
        if own == 1:  # it was chosen, not drawn, or is a hole
            own = sure = tree.sure[node] if tree.sure else GUESS
        values.append(min(least, above * refused * sure))
        reach[node] = min(values[-1], above * refused * own)
        left[parent] = refused * (1 - own), values[-1]
    return values
