"""One hole at a time, in random order."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import torch

from ...core.chance import At, Role
from ...core.claim import LAW, Method, claims
from ...core.law import Law
from ...core.option import CANVAS
from ...loops.denoise import Denoise
from ...loops.sight import Sight
from ...loops.unmask_blocks import blocks_of


def build(block: Annotated[int, CANVAS] = 0, size: Annotated[int, CANVAS] = 0) -> Method:
    """One random hole per look."""
    return Denoise(one, size, blocks_of(block))


@claims(
    LAW,
    note="if the model's conditionals are those of one joint law",
    shaped=False,
    trials=lambda _: [build(size=3), build(size=3, block=2)],
    build=build,
    paper="2502.09992",
    systems=("LLaDA (random remasking)",),
)
def one(sight: Sight) -> Collection[int]:
    """Fill one hole, chosen uniformly at random.

    By the chain rule any order of exact conditionals gives the exact joint law.

    Claim: LAW, for a model whose conditionals are those of one joint law. Cost: one look per token.
    """
    holes = sight.holes
    pick = Law(torch.zeros(len(holes), dtype=torch.float64)).draw(sight.chance, At(sight.canvas.step, Role.ORDER))
    return [holes[pick.token]]
