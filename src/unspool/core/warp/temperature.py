"""Temperature: how much the likely tokens are favoured over the unlikely ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..law import Law
from .warp import Same, Warp
from .warp_limits import expect, real

COLDEST = 1e-5  # below this, ordinary logits divided by the temperature overflow; 0 is the exact limit


@dataclass(frozen=True)
class Temperature(Warp):
    """p(x) ← p(x)^(1/t), normalised; t = 0 is greedy decoding, the point law of the most probable token.

    Cost: one division; at 0 one max.
    """

    t: float

    def __post_init__(self) -> None:
        fits = real(self.t, 0) and (self.t == 0 or self.t >= COLDEST)
        expect(fits, "temperature", self.t, f"0 (greedy) or a finite number from {COLDEST} on (1 leaves the law alone)")

    def __call__(self, state: Any, law: Law) -> Law:
        """The tempered law."""
        return law if self.t == 1 else law.temper(self.t)

    def soften(self, state: Any, law: Law) -> Law:
        return law if self.t == 0 else self(state, law)


def temperature_of(warp: Warp) -> float | None:
    """The temperature that a warp comes down to, None if it does more."""
    if isinstance(warp, Same):
        return 1.0
    return warp.t if isinstance(warp, Temperature) else None
