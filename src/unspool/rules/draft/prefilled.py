"""What the target thought while it read the prompt, given to a drafter that remembers such things."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Scores, Tops
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.tree import Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source, check_drafter
from ...loops.speculate import Speculate
from .composite import CompositeDraft, CompositeSource
from .recycle import Recycle

WIDTH = 8


@claims(
    SEED,
    trials=lambda _: [Speculate(Prefilled(Recycle()), budget=2), Speculate(Prefilled(Recycle()), budget=4)],
    paper="2505.13204",
    systems=("Token Recycling, warm from the prompt",),
)
@dataclass(frozen=True)
class Prefilled(CompositeDraft):
    """`draft`, told after the first round which tokens the target ranked highest at each place of the prompt.

    The laws are there when a prompt is read; here the best 8 tokens of each are kept and noted by token recycling,
    `bigram_recycling` or STAND as if they had been scored in a round. Of places that a cache held, what an earlier
    request with this want was told is known, and of others nothing. The idea is a remark of AASD's.

    Claim: that of `draft`. Cost: the output layer over the prompt's last 512 tokens, in the forward that reads them.
    """

    draft: Draft

    def __post_init__(self) -> None:
        check_drafter("prefilled:draft", self.draft)

    @property
    def parts(self) -> tuple[Draft, ...]:
        return (self.draft,)

    def holding(self, parts: tuple[Draft, ...]) -> Draft:
        return Prefilled(*parts)

    def begin(self, prefix: Prefix) -> Source:
        telling = _Telling(self.sources(prefix))
        if not telling.listens:
            raise BadRequest(
                f"{type(self.draft).__name__} has no use for the laws of the prompt; "
                "Prefilled takes Recycle, Recall or Stand, or a drafter whose source says that it listens"
            )
        return telling


class _Telling(CompositeSource):
    """A source that listens to the first forward, which reads the prompt, and to no other."""

    def __init__(self, sources: tuple[Source, ...]) -> None:
        super().__init__(sources)
        self.untold = True

    @property
    def want(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((f"prompt:{WIDTH}", *super().want))) if self.untold else super().want

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        (source,) = self.sources
        return (yield from source.propose(prefix, budget, chance))

    def told(self, text: tuple[int, ...], tops: Tops) -> None:
        self.untold = False
        super().told(text, tops)

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        if self.untold:
            self.told(prefix.text, scores.tops)
        super().learn(prefix, tree, scores)
