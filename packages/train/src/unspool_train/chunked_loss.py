"""The distance of guesses from the model's laws, with its slopes made chunk by chunk, so that no logits are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

LEAST = 1e-4  # of a variance that is divided by
CHUNK = 8192  # rows of logits that are in memory at a time
Slopes: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def slopes(logits: Tensor, wanted: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Σ weight · Σ_x −wanted(x) · log softmax(logits)(x) over rows, and its slope in logits.

    This is KL(wanted ‖ softmax) but for entropies. A law that was cut to fewer tokens weighs what is left of it.
    """
    wide, wanted = logits.float(), wanted.float()
    total, mass = wide.logsumexp(1), wanted.sum(1)
    slope = (mass[:, None] * (wide - total[:, None]).exp() - wanted) * weight[:, None]
    return (weight * (mass * total - (wanted * wide).sum(1))).sum(), slope.to(logits.dtype)


def overlap_slopes(logits: Tensor, wanted: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Σ weight · (1 − Σ_x min(wanted(x), q(x))), q = softmax(logits), over rows: the share of refused drafts.

    With r(x) = 1 where q(x) < wanted(x) and M = Σ q·r the slope is q·(M − r).
    """
    return _refused(logits, wanted, weight, False)


def tvdpp_slopes(logits: Tensor, wanted: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The same with TVD++'s slope (arXiv 2403.00858): rewards r less their mean, over their deviation, not drawn."""
    return _refused(logits, wanted, weight, True)


def _refused(logits: Tensor, wanted: Tensor, weight: Tensor, scaled: bool) -> tuple[Tensor, Tensor]:
    q, wanted = logits.float().softmax(1), wanted.float()
    short = q < wanted
    mass = (q * short).sum(1, keepdim=True)
    slope = q * (mass - short.float()) * weight[:, None]
    if scaled:
        slope = slope / (mass * (1 - mass)).clamp(min=LEAST).sqrt()
    return (weight * (1 - torch.minimum(q, wanted).sum(1))).sum(), slope.to(logits.dtype)


LOSSES: Mapping[str, Slopes] = {"kl": slopes, "tvd": overlap_slopes, "tvd++": tvdpp_slopes}


class ChunkedLoss(torch.autograd.Function):
    """What a rule of slopes makes of x·Wᵀ; slopes in x and W are made at once, chunk by chunk, and no logits kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, head: Tensor, wanted: Tensor, weight: Tensor, slopes: Slopes) -> Tensor:
        """`wanted` are the probabilities [n, vocab] that x is to give."""
        narrow = x.to(head.dtype)
        to_x, loss = torch.empty_like(narrow), x.new_zeros((), dtype=torch.float32)
        to_head = torch.zeros_like(head, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for first in range(0, len(x), CHUNK):
            some = slice(first, first + CHUNK)
            own, slope = slopes(functional.linear(narrow[some], head), wanted[some], weight[some])
            loss += own
            to_x[some] = slope @ head
            if to_head is not None:
                to_head += slope.T @ narrow[some]
        ctx.save_for_backward(to_x, *(() if to_head is None else (to_head.to(head.dtype),)))
        ctx.of = x.dtype
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor | None, None, None, None]:
        """The slopes, which are known already."""
        to_x, *to_head = ctx.saved_tensors
        return to_x.to(ctx.of) * grads[0], to_head[0] * grads[0] if to_head else None, None, None, None


def foreseen(x: Tensor, head: Tensor, wanted: Tensor, weight: Tensor, slopes: Slopes) -> Tensor:
    """Σ weight · the distance of softmax(x·Wᵀ) from `wanted`, by a rule of slopes."""
    found: Tensor = ChunkedLoss.apply(x, head, wanted, weight, slopes)  # type: ignore[no-untyped-call]
    return found
