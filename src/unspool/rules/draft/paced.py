"""A second model drafts a chain, as long as a rule says."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from ...core.asks import Ask, Price, Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.cost import Cost
from ...core.tree import NOTHING, ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source, possible
from ...loops.speculate import Speculate
from ..grow.draft_length import ConfidentLength, Ema, Heuristic, Length, Threshold
from ..verify.rejection import rejection
from .chain import DRAFT
from .siblings import is_greedy

TENTH = 0.1  # what a draft step is taken to cost where nobody can tell


@claims(
    LAW,
    trials=lambda _: [
        Speculate(Paced(Heuristic(first=1, longest=2)), rejection, budget=20),
        Speculate(Paced(Ema(longest=2, weight=1.0, probe=2)), rejection, budget=20),
        Speculate(Paced(ConfidentLength(doubt=0.6, least=1, longest=2)), rejection, budget=20),
        Speculate(Paced(Threshold(first=0.6, longest=2, least=2)), rejection, budget=20),
    ],
    paper="2405.19715",
    systems=(
        "Adaptive draft length (transformers: heuristic and threshold; ExLlamaV3)",
        "SpecDec++ (without its head, which `specdecpp` has)",
    ),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class Paced(Draft):
    """Draw a chain from a draft model; a rule of lengths says after each kept token whether to go on.

    Rules see earlier rounds and the probabilities of tokens that stay, so none can drop a token for what it is.

    Claim: LAW under rejection. Cost: one forward of the draft model per drafted token.
    """

    length: Length = Heuristic()  # noqa: RUF009  (frozen)

    def begin(self, prefix: Prefix) -> Source:
        return _Pacing(self.length)


class _Pacing(Source):
    def __init__(self, length: Length) -> None:
        self.length, self.state = length, length.start()
        self.start, self.tokens, self.sure = 0, tuple[int, ...](), list[float]()

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree, node, start = NOTHING, ROOT, len(prefix)
        sure: list[float] = []
        ends = False
        if self.length.asks_price:
            self.length = self.length.priced((yield from ratio()))
        most = prefix.ahead(min(self.length.most(self.state), budget))
        while len(sure) < most and not ends and not self.length.enough(self.state, sure):
            scores: Scores = yield Score(tree, by=DRAFT)
            raw = scores.law(node)
            shaped = possible(prefix, raw)
            if shaped is None:
                break
            ends = self.length.last(self.state, raw if is_greedy(shaped) else shaped)
            token, law = drawn = shaped.draw(chance, At(start + len(sure), Role.DRAFT, round=start))
            tree, node = tree.grow(drawn, node)
            prefix = prefix.then((token,))
            sure.append(law[token] if law[token] < 1 else raw[token])  # greedy: how sure the draft itself is
        self.start, self.tokens, self.sure = start, prefix.text[start:], sure
        return tree

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Read off the text how many of the own tokens stood: the tree may be another drafter's."""
        known = list(zip(self.tokens, prefix.text[self.start :], strict=False))
        accepted = next((i for i, (mine, written) in enumerate(known) if mine != written), len(known))
        if self.start:
            self.state = self.length.step(self.state, self.sure[: len(known)], accepted)
        self.start, self.tokens, self.sure = 0, (), []


def ratio() -> Generator[Ask, Any, float]:
    """How many forwards of the target a forward of the draft model takes here and now."""
    draft: Cost | None = yield Price(DRAFT)
    target: Cost | None = yield Price()
    return TENTH if draft is None or target is None else draft(1) / target(1)
