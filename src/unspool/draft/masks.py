"""The target as its own drafter: what it guesses behind masks, in the forward that checks a draft, is the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..asks import Scores
from ..canvas import HOLE
from ..chance import Chance
from ..claim import SEED, Method, claims
from ..errors import BadRequest
from ..grow.chosen import chosen
from ..grow.cost import FREE
from ..option import Product, Range
from ..tree import ROOT, Tree
from ..warp.warp import Prefix
from .draft import Draft, Proposing, Source
from .guide import Kids
from .merge import Merged
from .recall import Recall
from .suffix import Suffix

TRUST = 0.7  # what a guess behind a mask is believed to be worth before the text has told
WIDTH = 8  # guesses that are kept of each mask


def build(
    nodes: Annotated[int, Range(1, 128)] = 7, ahead: Annotated[int, Range(1, 16)] = 3
) -> Annotated[Method, Product(256, "nodes", "ahead")]:
    """Guesses behind masks, copies and remembered laws in one tree, under the walk."""
    return drafting(Masks(ahead, (Suffix(depth=nodes), Recall())), nodes)


def drafting(masks: Masks, nodes: int) -> Method:
    """As many guesses and the masks that go with them, under the walk."""
    from ..decode.speculate import Speculate

    return Speculate(masks, budget=nodes + (nodes + 1) * masks.ahead)


@claims(
    SEED,
    trials=lambda _: [drafting(Masks(1), 2), drafting(Masks(2, (Recall(),)), 1)],
    build=build,
    systems=("SPACE (masks beside candidates, one call to verify and draft)",),
)
@dataclass(frozen=True)
class Masks:
    """Hang `ahead` mask tokens below the text and below every drafted node; the law after each is the next draft.

    One forward scores prefix | M | c₁ M | c₂ M …: it verifies the candidates c, and behind the last one that stands its
    masks have already guessed what follows the token that comes next. The model is one that was trained to fill holes;
    SPACE lets masks of a group see each other, here each sees those before it, as tokens do. What `beside` drafts joins
    the same tree, calibrated as `merge` does it. No law gives a mask a chance, so that none is ever accepted.

    Claim: SEED under the walk. Cost: one forward per round, over nodes + (nodes + 1)·ahead rows.
    """

    ahead: int = 3
    beside: tuple[Draft, ...] = ()

    def __post_init__(self) -> None:
        if self.ahead < 1:
            raise BadRequest(f"masks:ahead={self.ahead} cannot be used; expected at least 1 mask")

    def begin(self, prefix: Prefix) -> Source:
        """No guesses yet."""
        guesses = Guesses()
        return Masked(self, guesses, Merged([*(draft.begin(prefix) for draft in self.beside), guesses], FREE))


class Guesses:
    """The tokens that were guessed behind masks, by their distance from the end of the text: a guide, and no more."""

    voices = (TRUST, TRUST / 2, TRUST / 4)  # guesses one, two and more places further

    def __init__(self) -> None:
        self.rows: list[list[tuple[int, float]]] = []

    def start(self, prefix: Prefix) -> int:
        """Right behind the text."""
        return 0

    def below(self, place: int) -> tuple[int, Kids]:
        """What was guessed there, whatever comes before it."""
        voice = min(place, len(self.voices) - 1)
        return voice, self.rows[place] if place < len(self.rows) else ()

    def then(self, place: int, token: int) -> int | None:
        """One place further."""
        return place + 1 if place + 1 < len(self.rows) else None

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        """Nothing: it is asked as a guide."""
        yield from ()
        return Tree()

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Told by whoever hung the masks."""


class Masked:
    """The masks of one request, and all that drafts beside them."""

    def __init__(self, masks: Masks, guesses: Guesses, free: Merged) -> None:
        self.masks, self.guesses, self.free = masks, guesses, free
        self.hung: dict[int, list[int]] = {}  # the masks below each node
        self.real = Tree()

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        """The best guesses, each with masks of its own, as far as the budget goes."""
        ahead = self.masks.ahead
        self.real = yield from self.free.propose(prefix, max(0, (budget - ahead) // (1 + ahead)), chance)
        drawn, parent = list(self.real.drawn), list(self.real.parent)
        self.hung = {}
        for node in (ROOT, *range(len(self.real))):
            if len(drawn) + ahead > budget:
                break
            self.hung[node] = list(range(len(drawn), len(drawn) + ahead))
            parent += [node, *self.hung[node][:-1]]
            drawn += [chosen(HOLE)] * ahead
        return Tree(tuple(drawn), tuple(parent))

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Read what was guessed behind the last token that stood."""
        node = ROOT
        for token in prefix.text[self.free.start : -1]:
            kid = self.real.child(node, token)
            if kid is None:
                break
            node = kid
        seen = [i for i in self.hung.get(node, ()) if i < len(tree)]  # the end of a text may have cut some off
        best = scores.best(WIDTH) if seen else []
        self.guesses.rows = [best[1 + i] for i in seen]
        self.free.learn(prefix, tree, scores)
