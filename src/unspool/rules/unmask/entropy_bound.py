"""As many holes at once as an entropy budget allows, so that what they could tell each other is bounded."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import BOUND, claims
from ...core.option import expect, real
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks, Rule
from .certainty import Certainty, entropy, margin, ranked

TRIED = 0.6


@claims(
    BOUND,
    note="if the model's conditionals are those of one joint law",
    shaped=False,
    trials=lambda _: [
        Denoise(EntropyBound(TRIED), 3, FixedBlocks(32)),
        Denoise(EntropyBound(TRIED, margin), 3, FixedBlocks(32)),
    ],
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
    conditionals are those of one joint law, without warps (temperature 0 is one), and an order that looks at laws alone
    (not by `drawn`). It loses where
    holes are unsure but independent, which it cannot know. Cost: one look per group.
    """

    budget: float = 0.15
    certainty: Certainty = entropy

    def __post_init__(self) -> None:
        expect(real(self.budget, 0), "entropy_bound:budget", self.budget, "nats from 0 on; usual is 0.1 to 0.6")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        order = ranked(state, self.certainty)
        total = largest = 0.0
        for n, i in enumerate(order):
            nats = state.peak(i).entropy
            total, largest = total + nats, max(largest, nats)
            if n and total - largest > self.budget:
                return order[:n]
        return order
