"""Heads that look ahead: guesses for several tokens from one state of the model, made into a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...core.asks import Scores
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.tree import Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate
from ..grow.best_first import best_first, planted
from .guide import Guide, Kids

HEADS = "heads"
Guesses: TypeAlias = Sequence[Sequence[tuple[int, float]]]


@claims(
    SEED,
    trials=lambda _: [Speculate(Heads(), budget=2), Speculate(Heads(), budget=4)],
    paper="2401.10774",
    systems=("Medusa",),
    needs=(HEADS,),
)
@dataclass(frozen=True)
class Heads(Draft):
    """Let heads that were trained for the model guess several tokens at once from its last state.

    p̂(path) = Π_k p_k(token k of the path): the k-th head does not know what the others guess. The tree has the paths
    with the largest products, where the paper has one fixed shape. In the round before, the forward that verified a
    tree has also computed the state that the heads now read, so drafting costs no forward. Heads are made by
    `unspool train heads`; smollm2's come with unspool-weights.

    Claim: SEED under sample matching; it loses where a forward over a few tokens costs much more than one over a single
    token, as with small models. Cost: one product by the output matrix per round, for all heads together.
    """

    width: int = 8

    def begin(self, prefix: Prefix) -> Source:
        return HeadsSource(self.width, len(prefix))


class HeadsSource(Source, Guide):
    """What the heads said last of one text."""

    voices = (1.0, 0.9, 0.8, 0.7)  # of the first head, the second, …

    def __init__(self, width: int, length: int) -> None:
        self.width, self.length = width, length
        self.guesses: Guesses = ()

    @property
    def want(self) -> tuple[str, ...]:
        return (f"{HEADS}:{self.width}",)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        return planted(best_first(lambda d: self.below(d)[1], budget, start=self.start(prefix), then=self.then))

    def start(self, prefix: Prefix) -> int:
        if len(prefix) != self.length:  # the text has gone on by itself since they were asked
            self.guesses, self.length = (), len(prefix)
        return 0

    def below(self, place: int) -> tuple[int, Kids]:
        return min(place, len(self.voices) - 1), self.guesses[place] if place < len(self.guesses) else ()

    def then(self, place: int, token: int) -> int:
        return place + 1

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Take the guesses made where the accepted path ends and the token that follows it is known."""
        if scores.ahead is None:
            raise BadRequest(
                "the method heads asks for heads that look ahead, and this model has none: name a file of them with "
                "--heads FILE (`unspool train heads` makes one; smollm2's come with unspool-weights). Heads need "
                "the native runtime and one rank."
            )
        node = tree.end(prefix.text[self.length : -1])  # what was kept, but for its last token, was drafted
        self.guesses, self.length = scores.ahead(node, prefix.text[-1]), len(prefix)
