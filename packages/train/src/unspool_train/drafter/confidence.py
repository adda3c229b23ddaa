"""A logistic head that foresees whether a guess will stand (DSpark's confidence; SpecDec++'s idea, arXiv 2405.19715).

σ(w·x + b) is to be Σ_x min(p, q), the chance that a draft from q stands under p, by cross-entropy. The state that it
reads is left as it is: nothing flows back into the drafter.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

MOST = 4096  # guesses of a depth that it learns from in a step


def has_one(tensors: Mapping[str, Tensor]) -> bool:
    """Whether a drafter has such a head."""
    return "confidence.weight" in tensors


def surprise(tensors: Mapping[str, Tensor], x: Tensor, head: Tensor, laws: Tensor) -> Tensor:
    """The cross-entropy of its opinion on some guesses, whose outputs are x and whose laws are to be `laws`."""
    with torch.no_grad():
        law = functional.linear(x[:MOST], head).float().softmax(1)
        stands = torch.minimum(law, laws[:MOST].float()).sum(1).clamp(0, 1)
    weight, bias = tensors["confidence.weight"], tensors["confidence.bias"]
    said = functional.linear(x[:MOST].detach().float()[:, : weight.shape[1]], weight, bias)[:, 0]
    return functional.binary_cross_entropy_with_logits(said, stands)
