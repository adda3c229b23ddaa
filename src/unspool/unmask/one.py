"""One hole at a time, in random order."""

from __future__ import annotations

from collections.abc import Collection

import torch

from ..asks import Field
from ..canvas import Canvas
from ..chance import At, Chance, Role
from ..claim import LAW, Method, claims
from ..law import Law


def build(size: int = 64) -> Method:
    """One random hole per look."""
    from ..decode.denoise import Denoise

    return Denoise(one, size)


@claims(
    LAW,
    shaped=False,
    trials=lambda _: [build(size=3)],
    build=build,
    paper="2502.09992",
    systems=("LLaDA (random remasking)",),
)
def one(field: Field, canvas: Canvas, chance: Chance) -> Collection[int]:
    """Fill one hole, chosen uniformly at random.

    By the chain rule any order of exact conditionals gives the exact joint law.

    Claim: LAW, for a model whose conditionals are those of one joint law. Cost: one look per token.
    """
    holes = list(field)
    pick = Law(torch.zeros(len(holes), dtype=torch.float64)).draw(chance, At(canvas.step, Role.ORDER))
    return [holes[pick.token]]
