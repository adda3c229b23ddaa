"""Plain decoding: one token per forward, the measure of everything else."""

from __future__ import annotations

from ..claim import SEED, Method, claims
from .speculate import Speculate


@claims(
    SEED,
    trials=lambda rule: [rule()],
    systems=("Autoregressive sampling", "Greedy decoding"),
)
def plain() -> Method:
    """Draw each token from the target's law after all warps: speculation with nothing drafted.

    Claim: SEED, by definition; `prove` compares it with a reference that shares none of its code.
    Cost: one forward per token.
    """
    return Speculate()
