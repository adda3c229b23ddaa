"""Alignment sampling: copy what followed, and beside it what the target itself thought would follow there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ...core.asks import Score, Scores
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.option import expect, real
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

    They are read off the target's laws when it reads the prompt, and when it checks what is written; a few tokens are
    kept per place, not the laws. A token to which the target gave p ≥ `poor` at its own place is aligned already and
    goes alone; so does one of which nothing is known, because a cache held it untold or it lies too far back.

    Claim: SEED under sample matching. Cost: the prompt is read in a forward of its own, with the output layer over its
    last 512 tokens; then as `lookup`, with 1 + `beside` nodes per poorly aligned token.
    """

    lookup: Lookup = Lookup()  # noqa: RUF009  (frozen)
    beside: int = 2
    poor: float = 0.9

    def __post_init__(self) -> None:
        if self.beside < 0:
            raise BadRequest(f"aligned:beside={self.beside} cannot be used; expected 0 (lookup alone) or more tokens")
        expect(real(self.poor, 0), "aligned:poor", self.poor, "a probability, or more for others beside every token")

    def begin(self, prefix: Prefix) -> Source:
        return Opinions(self.beside, self.poor, self.lookup.depth, Places(self.lookup), len(prefix))


@dataclass
class Opinions(Source):
    """The n-grams of one text, and the tokens that the target ranked highest at its places.

    `seen` is how long the text was when it was learnt from last.
    """

    beside: int
    poor: float
    depth: int
    places: Places
    seen: int
    tops: dict[int, Sequence[tuple[int, float]]] = field(default_factory=dict)
    asked: bool = False

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        if not self.asked and self.beside:
            scores: Scores = yield Score(want=(f"prompt:{self.beside + 1}",))
            self.tops |= scores.tops
        self.asked = True
        self.places.read(prefix.text)
        place = self.places.found(prefix.text)
        if place is None:
            return NOTHING
        copied = prefix.text[place : place + min(self.depth, budget)]
        tree = Tree.chain([chosen(x) for x in copied])
        drawn, parent = list(tree.drawn), list(tree.parent)
        for i, token in enumerate(copied):
            told = self.tops.get(place + i, ())
            if any(x == token and p >= self.poor for x, p in told):
                continue
            others = [x for x, _ in told if x != token]
            for x in others[: min(self.beside, budget - len(drawn))]:
                drawn.append(chosen(x))
                parent.append(i - 1 if i else ROOT)
        return Tree(tuple(drawn), tuple(parent))

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Note what the target thought at the places that were written in this round."""
        if self.beside:
            path = [ROOT, *tree.path(tree.end(prefix.text[self.seen : -1]))]
            rows = torch.stack([scores.law(node).scores for node in path])
            logs, tokens = rows.topk(min(self.beside + 1, rows.shape[1]))
            p = (logs.double() - rows.double().logsumexp(1, keepdim=True)).exp()
            best = [list(zip(*row, strict=True)) for row in zip(tokens.tolist(), p.tolist(), strict=True)]
            self.tops |= dict(zip(range(self.seen, len(prefix)), best, strict=True))
        self.seen = len(prefix)
