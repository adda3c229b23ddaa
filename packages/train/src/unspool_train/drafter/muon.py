"""Muon (arXiv 2502.16982): matrices move along momentum whose singular values are all made 1, the rest by AdamW.

m ← β·m + g; the step of a matrix [a, b] is rate · 0.2 · √max(a, b) · U·Vᵀ, where g + β·m = U·S·Vᵀ: so its numbers move
as far as AdamW's do, and one rate serves both. U·Vᵀ is found by five steps of Newton and Schulz, whose polynomial
brings singular values to about 1. Embeddings and heads, whose rows are tokens, stay with AdamW.
Cost: fifteen products of a matrix's smaller side a step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

STEPS, POLYNOMIAL = 5, (3.4445, -4.7750, 2.0315)
MOMENTUM, BETAS, TINY = 0.95, (0.9, 0.95), 1e-8
BY_TOKENS = re.compile(r"(head|embed|markov|selector)\..*|steps\.\d+\.(embed|out)")  # matrices whose rows are tokens


def orthogonal(x: Tensor) -> Tensor:
    """About U·Vᵀ of x = U·S·Vᵀ, in bfloat16 on a GPU."""
    a, b, c = POLYNOMIAL
    y: Tensor = x.bfloat16() if x.is_cuda else x
    tall = y.shape[0] > y.shape[1]
    y = y.T if tall else y
    y = y / (torch.linalg.matrix_norm(y) + 1e-7)
    for _ in range(STEPS):
        square = y @ y.T
        y = a * y + (b * square + c * square @ square) @ y
    return (y.T if tall else y).to(x.dtype)


class Muon(torch.optim.Optimizer):
    """Both rules in one optimiser; the state has AdamW's names, so that checkpoints are alike."""

    def __init__(self, tensors: Mapping[str, Tensor], lr: float = 0.0) -> None:
        def turned(name: str, tensor: Tensor) -> bool:
            return tensor.dim() == 2 and min(tensor.shape) > 1 and not BY_TOKENS.fullmatch(name)

        matrices = [tensor for name, tensor in tensors.items() if turned(name, tensor)]
        others = [tensor for name, tensor in tensors.items() if not turned(name, tensor)]
        groups = [{"params": matrices, "turned": True}, {"params": others, "turned": False}]
        super().__init__([group for group in groups if group["params"]], {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move everything that has a slope."""
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is None:
                    continue
                state = self.state[tensor]
                if not state:
                    state["step"] = torch.zeros(())
                    state["exp_avg"] = torch.zeros_like(tensor)
                    if not group["turned"]:
                        state["exp_avg_sq"] = torch.zeros_like(tensor)
                state["step"] += 1
                (self._turn if group["turned"] else self._scale)(tensor, state, group["lr"])

    def _turn(self, tensor: Tensor, state: dict[str, Tensor], rate: float) -> None:
        assert tensor.grad is not None
        mean = state["exp_avg"].mul_(MOMENTUM).add_(tensor.grad)
        way = orthogonal(tensor.grad.add(mean, alpha=MOMENTUM))
        tensor.add_(way, alpha=-rate * 0.2 * max(tensor.shape) ** 0.5)

    def _scale(self, tensor: Tensor, state: dict[str, Tensor], rate: float) -> None:
        assert tensor.grad is not None
        (first, second), count = BETAS, float(state["step"])
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(tensor.grad, 1 - first)
        square.mul_(second).addcmul_(tensor.grad, tensor.grad, value=1 - second)
        scale = (square / (1 - second**count)).sqrt_().add_(TINY)
        tensor.addcdiv_(mean, scale, value=-rate / (1 - first**count))


def adamw(tensors: Mapping[str, Tensor]) -> torch.optim.Optimizer:
    """AdamW without decay, in one kernel where there is one."""
    own = list(tensors.values())
    return torch.optim.AdamW(own, lr=0.0, betas=BETAS, weight_decay=0.0, fused=own[0].is_cuda)


OPTIMISERS: Mapping[str, Callable[[Mapping[str, Tensor]], torch.optim.Optimizer]] = {"muon": Muon, "adamw": adamw}
