"""What a target still has to give after a draft had its turn: used wherever a whole block is weighed at once."""

from __future__ import annotations

import torch

from ...core.law import Law


def residual(p: Law, q: Law, weight: float) -> tuple[Law, float]:
    """norm[weight·p − q]₊, and the probability S/(S + 1 − weight) that the draft ends here, S = Σ[weight·p − q]₊.

    `weight` is the probability that this prefix may be emitted at all. At weight 1 something must be, so the second
    is 1; where nothing is left (p = q up to rounding), the law is p itself.
    """
    rest = (weight * p.p - q.spread(p)).clamp_min(0)
    left = float(rest.sum(dtype=torch.float64))
    short = left + 1 - weight
    return (Law(rest.log()) if left > 0 else p), (left / short if short > 0 else 1.0)
