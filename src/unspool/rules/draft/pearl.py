"""Draft on while the target checks: if all of a draft stands, the next one is already there."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Begin, Fetch, Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import SEED, claims
from ...core.option import expect, whole
from ...core.tree import NOTHING, ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source, possible
from ...loops.speculate import Speculate
from .chain import DRAFT


@claims(
    SEED,
    trials=lambda _: [Speculate(Pearl(1), budget=1), Speculate(Pearl(2), budget=2)],
    paper="2408.11850",
    systems=("PEARL (post-verify: drafting overlaps with verification)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class Pearl(Draft):
    """Draw `depth` tokens with plain decoding's random numbers, and `depth` + 1 below them while they are checked.

    If all of them stand and the target's next token is the first of those below, the others are the next draft, and
    drafting has cost no time. As in `coupled` both models draw a position with the same random number, so they often
    agree on that token; at temperature 0 they do whenever their best tokens are the same. If they do not agree, what
    was drafted below is thrown away. The paper's other half, which checks a first token while the others are drafted,
    is not here.

    Claim: SEED under sample matching. Cost: `depth` forwards of the draft model per round, and as many more in vain
    where it did not fit; beside the target's, where the draft model has a device of its own (`load(…, draft=load(…,
    device=…))`). On one device nothing is drafted ahead: there it is `coupled`.
    """

    depth: int = 4
    reuses_noise = True  # the numbers of a position are plain decoding's, in whatever round

    def __post_init__(self) -> None:
        expect(whole(self.depth, 1), "pearl:depth", self.depth, "a depth from 1 on; usual is 4")

    def begin(self, prefix: Prefix) -> Source:
        return _Ahead(self.depth)


class _Ahead(Source):
    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.begun: tuple[int, ...] | None = None  # the text that the tokens below follow

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        below: Tree | None = (yield Fetch()) if self.begun is not None else None
        text, self.begun = self.begun, None
        ready = NOTHING
        if below is not None and text is not None and len(below) and prefix.text == (*text, below.drawn[0].token):
            ready = Tree.chain(below.drawn[1:])
        depth = min(self.depth, budget)
        tree = yield from _drawn(prefix, ready.within(depth), depth, chance)
        if len(tree) == depth:
            self.begun = (*prefix.text, *tree.tokens(range(len(tree))))
            yield Begin(_below(prefix, tree, self.depth + 1, chance), DRAFT)
        return tree


def _below(prefix: Prefix, tree: Tree, count: int, chance: Chance) -> Proposing:
    """A chain of `count` more tokens behind a chain."""
    whole = yield from _drawn(prefix, tree, len(tree) + count, chance)
    return Tree.chain(whole.drawn[len(tree) :])


def _drawn(prefix: Prefix, tree: Tree, depth: int, chance: Chance) -> Proposing:
    """A chain that goes on until it has `depth` tokens, or until no text may follow."""
    here, node = prefix.then(tree.tokens(range(len(tree)))), len(tree) - 1 if len(tree) else ROOT
    while len(tree) < prefix.ahead(depth):
        scores: Scores = yield Score(tree, by=DRAFT)
        law = possible(here, scores.law(node))
        if law is None:
            break
        drawn = law.draw(chance, At(len(here), Role.PICK))
        tree, node = tree.grow(drawn, node)
        here = here.then((drawn.token,))
    return tree
