"""As many holes at once as an entropy budget allows, so that what they could tell each other is bounded."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from ...core.claim import BOUND, Method, claims
from ...core.option import CANVAS, WEIGHT
from ...core.warp.limits import expect, real
from ...loops.denoise import Denoise
from ...loops.sight import Sight
from ...loops.unmask_blocks import blocks_of
from ...loops.unmasker import Rule
from .certainty import CERTAINTY, Certainty, certainty_of, entropy, ranked

TRIED = 0.6


def build(
    budget: Annotated[float, WEIGHT] = 0.15,
    certainty: Annotated[str, CERTAINTY] = "entropy",
    block: Annotated[int, CANVAS] = 32,
    size: Annotated[int, CANVAS] = 0,
) -> Method:
    """The calmest holes of a block per look, within a budget in nats."""
    return Denoise(EntropyBound(budget, certainty_of(certainty)), size, blocks_of(block))


@claims(
    BOUND,
    note="if the model's conditionals are those of one joint law",
    shaped=False,
    trials=lambda _: [build(TRIED, size=3), build(TRIED, "margin", size=3)],
    build=build,
    name="entropy_bound",
    paper="2505.24857",
    systems=("EB-Sampler", "SDAR (entropy_bounded)"),
    bound=lambda case: math.sqrt(TRIED / 2),  # of three holes, two at most are filled by guess
)
@dataclass(frozen=True)
class EntropyBound(Rule):
    """Fill the longest run U of the surest holes with Σ H − max H ≤ `budget`, entropies over U in nats; at least one.

    Tokens drawn each from its own law differ from tokens drawn together by their total correlation, and KL(p(U) ‖ Π
    p(i)) ≤ Σ H − max H. The order is a proxy of the error: `entropy`, `confidence` or `margin`; by the latter two the
    last hole need not have the largest entropy, so the largest so far is kept.

    Claim: BOUND. A look that fills one hole is exact, and of n holes ⌊n/2⌋ looks at most fill more than one. So KL ≤
    budget·⌊n/2⌋, and by Pinsker's inequality the total variation is at most √(budget·⌊n/2⌋/2): for a model whose
    conditionals are those of one joint law, and an order that looks at laws alone (not by `drawn`). It loses where
    holes are unsure but independent, which it cannot know. Cost: one look per group.
    """

    budget: float = 0.15
    certainty: Certainty = entropy

    def __post_init__(self) -> None:
        expect(real(self.budget, 0), "entropy_bound:budget", self.budget, "nats from 0 on; usual is 0.1 to 0.6")

    def __call__(self, sight: Sight) -> Collection[int]:
        """The longest run within the budget."""
        order = ranked(sight, self.certainty)
        total = largest = 0.0
        for n, i in enumerate(order):
            nats = sight.peak(i).entropy
            total, largest = total + nats, max(largest, nats)
            if n and total - largest > self.budget:
                return order[:n]
        return order
