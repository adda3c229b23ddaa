"""Tuning: which method decodes these prompts fastest on this machine, found by halving the field again and again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, log2

from unspool.api.settings import Settings
from unspool.core.cost import Cost

from .contender import PLAIN, Contender, Sample
from .standing import ConfidenceInterval, bootstrapped

MODEL_FREE = (
    "lookup",
    "lookup:ngram=3,least=1,depth=10",
    "suffix",
    "recycle:nodes=7",
    "bigram_recycling:nodes=7",
    "merge:nodes=3",
    "merge:nodes=7",
    "merge:nodes=15",
    "merge:nodes=31",
    "auto",
)
HEADED = ("heads:nodes=3", "heads:nodes=7", "heads:nodes=15")
DRAFTED = ("chain:depth=2", "chain:depth=4", "chain:depth=8", "paced", "svip", "likeliest", "phrase")


@dataclass
class TunedContender:
    """One contender and what it has written so far, by the number of the prompt."""

    contender: Contender
    samples: dict[str, Sample] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it is called."""
        return self.contender.name

    def rate(self, prompts: Sequence[str]) -> float:
        """Tokens per second over these prompts."""
        chosen = [self.samples[number] for number in prompts]
        return sum(sample.count for sample in chosen) / sum(sample.seconds for sample in chosen)

    def speed_up(self, plain: TunedContender) -> ConfidenceInterval:
        """Its speed over plain decoding's on the prompts that both have written."""
        both = [number for number in self.samples if number in plain.samples]
        return bootstrapped(both, lambda chosen: self.rate(chosen) / plain.rate(chosen), 0)

    @property
    def tokens_per_forward(self) -> float:
        """Tokens per forward of the target."""
        forwards = sum(sample.forwards for sample in self.samples.values())
        return sum(sample.count for sample in self.samples.values()) / max(1, forwards)


@dataclass(frozen=True)
class Tuned:
    """What was found: all arms, those that came furthest first, plain decoding among them."""

    best: TunedContender
    plain: TunedContender
    arms: tuple[TunedContender, ...]
    cost: Cost | None

    @property
    def gain(self) -> ConfidenceInterval:
        """The best one's speed over plain decoding's."""
        return self.best.speed_up(self.plain)

    def explained(self) -> str:
        """Why, in one paragraph with numbers."""
        said = [f"{len(self.arms)} methods were tried on {len(self.plain.samples)} prompts."]
        low = f", {self.gain.low:.2f} to {self.gain.high:.2f} by the prompts" if len(self.plain.samples) > 1 else ""
        if self.best is self.plain:
            most = max(len(arm.samples) for arm in self.arms if arm is not self.plain)
            others = [arm for arm in self.arms if arm is not self.plain and len(arm.samples) == most]
            near = max(others, key=lambda arm: arm.speed_up(self.plain).value)
            found = near.speed_up(self.plain)
            said.append(
                f"None is surely faster than plain decoding: {near.name} comes nearest, at {found.value:.2f} times "
                f"({found.low:.2f} to {found.high:.2f}) at {near.tokens_per_forward:.2f} tokens per forward."
            )
        else:
            said.append(
                f"{self.best.name} is fastest: {self.gain.value:.2f} times plain decoding{low}, at "
                f"{self.best.tokens_per_forward:.2f} tokens per forward."
            )
        if self.cost is not None:
            even = ", ".join(f"{self.cost.break_even(n):.2f} over {n}" for n in (2, 4, 8, 16))
            said.append(f"A round must write {even} rows to pay on this machine.")
        return " ".join(said)


def tune(
    contenders: Sequence[Contender],
    prompts: Sequence[tuple[int, ...]],
    settings: Settings,
    cost: Cost | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Tuned:
    """Sequential halving: all arms write the first prompts, the faster half goes on with the next, until one is left.

    Prompts come in a shuffled order, so that no round sees one kind alone. Plain decoding writes every prompt, as the
    measure. Each of the ⌈log₂ arms⌉ rounds gets its share of the prompts, so that the last two are compared on all of
    them. The winner is taken only if the whole interval of its speed-up is above 1; else plain decoding is. (Karnin,
    Koren, Somekh 2013, with unequal rounds.)
    """
    arms = [TunedContender(contender) for contender in contenders]
    plain = next(arm for arm in arms if arm.name == PLAIN)
    for arm in arms:
        arm.contender.write([prompts[0]], settings)  # the first text pays for set-up
        advance()
    left = [arm for arm in arms if arm is not plain]
    rounds = max(1, ceil(log2(max(2, len(left)))))
    each = ceil(len(prompts) / rounds)
    order = random.Random(0).sample(range(len(prompts)), len(prompts))
    for start in range(0, len(prompts), each):
        for number in order[start : start + each]:
            for arm in (plain, *left):
                arm.samples[str(number)] = arm.contender.write([prompts[number]], settings)
                advance()
        left.sort(key=lambda arm: -arm.speed_up(plain).value)
        left = left[: max(1, ceil(len(left) / 2))]
    best = left[0]
    sure = best.speed_up(plain)
    floor = sure.value if len(prompts) < 2 else sure.low
    ranked = sorted(arms, key=lambda arm: (-len(arm.samples), -arm.speed_up(plain).value))
    return Tuned(best if floor > 1 else plain, plain, tuple(ranked), cost)


def turns(contenders: int, prompts: int) -> int:
    """How many texts that takes."""
    arms = contenders - 1
    rounds = max(1, ceil(log2(max(2, arms))))
    each, total, left = ceil(prompts / rounds), contenders, arms
    for start in range(0, prompts, each):
        total += (min(start + each, prompts) - start) * (1 + left)
        left = max(1, ceil(left / 2))
    return total
