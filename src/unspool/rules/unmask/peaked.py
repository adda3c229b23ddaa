"""Every hole whose law is peaked enough, at once."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from ...core.claim import BOUND, claims
from ...core.option import expect, real
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks
from .certainty import entropy, ranked

TRIED = 0.68


@claims(
    BOUND,
    note="if the model's conditionals are those of one joint law",
    shaped=False,
    trials=lambda _: [Denoise(Peaked(TRIED), 3, FixedBlocks(32))],
    paper="2509.26488",
    systems=("dParallel (decoding)",),
    bound=lambda case: math.sqrt(TRIED * 2 / 2),  # three holes
)
@dataclass(frozen=True)
class Peaked:
    """Fill every hole whose entropy is at most `nats`, or the one with the least if none is.

    dParallel's decoding; the training that makes a model ready for it is not here.

    Claim: BOUND. A look that fills k holes loses at most (k − 1)·nats (see `entropy_bound`), so n holes (n − 1)·nats,
    and the total variation is at most √((n − 1)·nats/2), for a model whose conditionals are those of one joint law, and
    without warps: temperature 0 is one. It loses where the many calm holes of one look depend on each other. Cost: one
    look per group.
    """

    nats: float = 0.5

    def __post_init__(self) -> None:
        expect(real(self.nats, 0), "peaked:nats", self.nats, "an entropy from 0 on; usual is 0.5")

    def __call__(self, state: DenoiseState) -> Collection[int]:
        return [i for i in state.holes if state.peak(i).entropy <= self.nats] or ranked(state, entropy)[:1]
