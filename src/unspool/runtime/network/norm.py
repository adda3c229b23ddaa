"""Root-mean-square normalisation: x / sqrt(mean(x²) + ε) · w, in float32 or better."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last dimension of x.

    A weight of a wider type than x asks for the product in that type and one rounding after it, as Gemma has it.
    A weight of several dimensions gives each head its own factors.
    """
    if weight.dim() == 1 and weight.dtype == x.dtype:
        return F.rms_norm(x, weight.shape, weight, eps)
    return (F.rms_norm(x.to(weight.dtype), weight.shape[-1:], None, eps) * weight).to(x.dtype)
