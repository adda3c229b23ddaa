"""Alignment sampling: copy what followed, and beside it what the target itself thought would follow there."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.asks import Score, Scores, Tops
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.tree import NOTHING, ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate
from .lookup import Lookup, Places


@claims(
    SEED,
    trials=lambda _: [Speculate(Aligned(Lookup(1, 1, 2), 1), budget=4), Speculate(Aligned(Lookup(2, 1, 1)), budget=3)],
    paper="2505.13204",
    systems=("AASD (alignment sampling)",),
)
@dataclass(frozen=True)
class Aligned(Draft):
    """Copy as `lookup` does, and beside each copied token draft `beside` others that the target ranked highest there.

    They are read off the target's laws when it reads the prompt; a few tokens are kept per place, not the laws. Of what
    a cache held without having told it, and of generated text, nothing is known, and the copy goes alone.

    Claim: SEED under sample matching. Cost: the prompt is read in a forward of its own, with the output layer over its
    last 512 tokens; then as `lookup`, with 1 + `beside` nodes per token.
    """

    lookup: Lookup = Lookup()  # noqa: RUF009  (frozen)
    beside: int = 2

    def __post_init__(self) -> None:
        if self.beside < 0:
            raise BadRequest(f"aligned:beside={self.beside} cannot be used; expected 0 (lookup alone) or more tokens")

    def begin(self, prefix: Prefix) -> Source:
        return Opinions(self.beside, self.lookup.depth, Places(self.lookup))


@dataclass
class Opinions(Source):
    """The n-grams of one text, and the tokens that the target ranked highest at the places of its prompt."""

    beside: int
    depth: int
    places: Places
    tops: Tops = field(default_factory=dict)
    asked: bool = False

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        if not self.asked and self.beside:
            scores: Scores = yield Score(want=(f"prompt:{self.beside + 1}",))
            self.tops = scores.tops
        self.asked = True
        self.places.read(prefix.text)
        place = self.places.found(prefix.text)
        if place is None:
            return NOTHING
        copied = prefix.text[place : place + min(self.depth, budget)]
        tree = Tree.chain([chosen(x) for x in copied])
        drawn, parent = list(tree.drawn), list(tree.parent)
        for i, token in enumerate(copied):
            others = [x for x, _ in self.tops.get(place + i, ()) if x != token]
            for x in others[: min(self.beside, budget - len(drawn))]:
                drawn.append(chosen(x))
                parent.append(i - 1 if i else ROOT)
        return Tree(tuple(drawn), tuple(parent))
