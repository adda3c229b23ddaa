"""Reward-guided sampling: particles for texts in proportion to how likely and how good they are."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real
from ...core.stop import Stop
from ..constrain.potential import Potential
from .reward import Grader, Reward, written
from .smc import Smc, systematic


def _counted(text: str) -> float:
    return float(text.count("a"))


@claims(
    HEURISTIC,
    trials=lambda rule: [Smc(2, potential=rule(_counted, 0.7), resample=systematic, block=3)],
    paper="2604.16453",
    systems=("SMC reward-guided (prefix variant, lookahead variant, resample-move)",),
    shaped=False,
)
@dataclass(frozen=True)
class Rewarded:
    """Texts are wanted in proportion to p(text)·exp(`beta`·reward(text)), the reward any function of what they say.

    It is what the particles of `smc` are weighed by. Unfinished texts are gone on with by `partial`, the reward of a
    beginning (the prefix variant), or by what the rewards of a few texts are that are written on from them
    (`LookaheadTwist`): an estimate of E[exp(beta·reward) | beginning] without bias, which is the best guess there is.
    Both are taken back before the end, so the weights are proper whatever they say. A reward is asked once for a text.

    Claim: HEURISTIC for the one text that is drawn at the end; the gap printed is the one to plain decoding. The
    weights are proper for both variants, with blocks, moves and every way of resampling: enumerated in the tests.
    Reconstructed from the abstract, as sequential Monte Carlo has it.
    Cost: as `smc`; looking ahead writes `rollouts` texts to their end for every particle and block.
    """

    reward: Reward
    beta: float = 1.0
    partial: Reward | None = None

    def __post_init__(self) -> None:
        expect(callable(self.reward), "reward", self.reward, "a function from a text to a number")
        expect(real(self.beta) and self.beta > 0, "beta", self.beta, "a finite number above 0")

    def over(self, stop: Stop) -> Potential:
        whole = Grader(self.reward, stop)

        def complete(tokens: tuple[int, ...]) -> float:
            trim = stop.cut(stop.start(), tokens).trim
            return self.beta * whole.of(written(tokens, stop, trim))

        if self.partial is None:
            return Potential(complete)
        begun = Grader(self.partial, stop)
        return Potential(complete, lambda tokens: self.beta * begun.of(written(tokens, stop)))
