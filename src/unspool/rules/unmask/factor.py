"""As many holes at once as are sure enough for that many."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import HEURISTIC, claims
from ...core.option import expect, real
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks
from .certainty import confidence, ranked


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Denoise(Factor(), 3, FixedBlocks(32))],
    paper="2505.22618",
    systems=("Fast-dLLM (factor)",),
)
@dataclass(frozen=True)
class Factor:
    """Fill the n surest holes, with the largest n whose least sure one has p ≥ 1 − `factor`/(n + 1); the first is free.

    Since p falls and the bar rises with n, the holes are tried one after the other up to the first that fails. What is
    filled beside the free one has together at most −n·ln(1 − factor/(n + 1)) nats, which goes to `factor` as n grows.

    Claim: HEURISTIC; as factor → 0 it fills one at a time, besides what is certain, and is exact. It loses to
    `confident` where a few holes are fairly sure, and gains where many are very sure. Cost: one look per group.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        expect(real(self.factor, 0), "factor:factor", self.factor, "a number from 0 on; usual is 1")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        order = ranked(state, confidence)
        fails = (n for n, i in enumerate(order[1:], 2) if state.peak(i).p < 1 - self.factor / (n + 1))
        return order[: next(fails, len(order) + 1) - 1]
