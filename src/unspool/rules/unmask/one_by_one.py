"""One hole at a time, in random order."""

from __future__ import annotations

from collections.abc import Collection

import torch

from ...core.chance import At, Role
from ...core.claim import LAW, claims
from ...core.law import Law
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import FixedBlocks


@claims(
    LAW,
    note="if the model's conditionals are those of one joint law",
    shaped=False,
    trials=lambda rule: [Denoise(rule, 3), Denoise(rule, 3, FixedBlocks(2))],
    paper="2502.09992",
    systems=("LLaDA (random remasking)",),
)
def one(state: DenoiseState) -> Collection[int]:
    """Fill one hole, chosen uniformly at random.

    By the chain rule any order of exact conditionals gives the exact joint law.

    Claim: LAW, for a model whose conditionals are those of one joint law, without warps: what these make of the
    conditionals, temperature 0 too, is no longer of one law. Cost: one look per token.
    """
    holes = state.holes
    pick = Law(torch.zeros(len(holes), dtype=torch.float64)).draw(state.chance, At(state.canvas.step, Role.ORDER))
    return [holes[pick.token]]
