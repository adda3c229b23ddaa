"""Reward-guided sampling: particles for texts in proportion to how likely and how good they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ...core.claim import HEURISTIC, Method, claims
from ...core.option import BUDGET, FILE, STEP, TEXTS, WEIGHT, Choice, Product, Range
from ...core.stop import Stop
from ...core.warp.limits import expect, real
from ..constrain.awrs import Masked
from ..constrain.potential import Potential, Wanting
from .resample import RESAMPLE, systematic
from .reward import Grader, Reward, reward_of, written
from .smc import Smc
from .twist import Given, Lookahead, Twist


def build(
    reward: Annotated[str, FILE] = "",
    beta: Annotated[float, Range(1e-9, 1e6)] = 1.0,
    partial: Annotated[str, FILE] = "",
    ahead: Annotated[int, Range(0, 64)] = 0,
    steps: Annotated[int, Range(0, 4096)] = 0,
    particles: Annotated[int, TEXTS] = 8,
    power: Annotated[float, Range(0.001, 1000)] = 1.0,
    block: Annotated[int, STEP] = 8,
    moves: Annotated[int, Range(0, 64)] = 0,
    back: Annotated[int, Range(1, 64)] = 1,
    resample: Annotated[str, Choice(tuple(RESAMPLE))] = "systematic",
    threshold: Annotated[float, WEIGHT] = 0.5,
    rows: Annotated[int, BUDGET] = 0,
) -> Annotated[Method, Product(256, "particles", "ahead"), Product(1024, "particles", "back")]:
    """Particles for a reward that is FILE.py:NAME; with `ahead`, so many rollouts say who is gone on with."""
    expect(resample in RESAMPLE, "rewarded:resample", resample, f"one of {', '.join(RESAMPLE)}")
    wanted: Wanting = Potential()
    if reward:
        wanted = Rewarded(reward_of(reward), beta, reward_of(partial) if partial else None)
    twist: Twist = Lookahead(ahead, steps) if ahead else Given()
    return Smc(particles, Masked(power), wanted, RESAMPLE[resample], threshold, block, moves, rows, back, twist)


def _counted(text: str) -> float:
    return float(text.count("a"))


@claims(
    HEURISTIC,
    trials=lambda rule: [Smc(2, potential=rule(_counted, 0.7), resample=systematic, block=3)],
    build=build,
    paper="2604.16453",
    systems=("SMC reward-guided (prefix variant, lookahead variant, resample-move)",),
    shaped=False,
)
@dataclass(frozen=True)
class Rewarded:
    """Texts are wanted in proportion to p(text)·exp(`beta`·reward(text)), the reward any function of what they say.

    It is what the particles of `smc` are weighed by. Unfinished texts are gone on with by `partial`, the reward of a
    beginning (the prefix variant), or by what the rewards of a few texts are that are written on from them
    (`Lookahead`): an estimate of E[exp(beta·reward) | beginning] without bias, which is the best guess there is. Both
    are taken back before the end, so the weights are proper whatever they say. A reward is asked once for every text.

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
        """The potential over tokens."""
        whole = Grader(self.reward, stop)

        def complete(tokens: tuple[int, ...]) -> float:
            trim = stop.cut(stop.start(), tokens).trim
            return self.beta * whole.of(written(tokens, stop, trim))

        if self.partial is None:
            return Potential(complete)
        begun = Grader(self.partial, stop)
        return Potential(complete, lambda tokens: self.beta * begun.of(written(tokens, stop)))
