"""Self-evaluation decoding: at chaotic points, look ahead and let an evaluator have a say."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.chance import At, Chance
from ...core.claim import HEURISTIC, claims
from ...core.law import Law
from ...core.option import expect, whole
from ...core.warp.truncate import entropy as nats
from ...core.warp.warp import Warp
from .branch import Branch
from .mark import Leaning, LikelihoodMark
from .rollout import Border
from .search_text import without_greedy


@claims(
    HEURISTIC,
    trials=lambda rule: [Branch(rule(0.5, 0.9, 2), Leaning(LikelihoodMark()), Border((), 2), 1)],
    paper="2405.16552",
    systems=("SED",),
)
@dataclass(frozen=True)
class Chaotic:
    """Write the best token; where H > `entropy` or p₂/p₁ > `ratio`, try the `top` best and see what comes of each.

    From each of them an answer is written greedily and marked; the token with the highest log p + weight·mark is
    written. Thresholds and the way to combine the two were not to be found in the paper and are reconstructed; its
    evaluator is a model that was trained for that, ours is whatever mark is plugged in.

    Claim: HEURISTIC, and greedy decoding if nothing is chaotic or `top` is 1.
    Cost: at every chaotic point `top` rows per token of an answer, and the evaluation.
    """

    entropy: float = 1.0
    ratio: float = 0.5
    top: int = 3

    def __post_init__(self) -> None:
        expect(self.entropy >= 0, "chaotic:entropy", self.entropy, "nats from 0 on; inf is never")
        expect(self.ratio >= 0, "chaotic:ratio", self.ratio, "a share from 0 on; 1 and above is never")
        expect(whole(self.top, 1), "chaotic:top", self.top, "a whole number of tokens from 1 on")

    def view(self, warp: Warp) -> Warp:
        """Without a temperature of 0, which would hide all doubt."""
        return without_greedy(warp)

    def ways(self, law: Law, chance: Chance, position: int) -> list[int]:
        few = [law.best, *(x for x in law.top(self.top + 1) if x != law.best)][: max(2, self.top)]
        few = [x for x in few if law[x] > 0]
        close = len(few) > 1 and law[few[1]] / law[few[0]] > self.ratio
        return few[: self.top] if close or nats(law, law.log_z - law.scores) > self.entropy else few[:1]

    def follow(self, law: Law, chance: Chance, at: At) -> int:
        return law.best
