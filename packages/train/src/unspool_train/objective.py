"""The losses at the read-outs: cross-entropy and certainty, with their gradient made chunk by chunk.

Cross-entropy −log p(target), and for masked tokens that are already right the entropy of softmax(logits / T), T < 1,
which pushes what is right towards certain and leaves what is wrong alone (certainty-forcing, arXiv 2509.26488).
The first read-outs may learn a teacher's law instead of a token, for a share: −Σ_v ((1 − share)·[v = target] +
share·law(v)) log p(v). A law has far less noise than a token of a text, so that what reads stays what it was.

Cost: one chunk of logits at a time; the head is frozen, so the gradient of a chunk is known as soon as it is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TEMPERATURE = 0.5
CHUNK = 4096


@dataclass(frozen=True)
class Readouts:
    """What was computed at each read-out: cross-entropy, whether the likeliest token is right, and its probability."""

    loss: Tensor
    right: Tensor
    confidence: Tensor


def slopes(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    certainty: Tensor,
    banned: int,
    told: Tensor | None = None,
    share: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (∂(weight · CE + certainty · H · [right]) / ∂logits, CE, right, confidence) for rows of logits.

    With a teacher's logits `told`, a `share` of each row's target is its law; the CE returned is that of the token.
    """
    column = torch.arange(logits.shape[-1], device=logits.device)
    z = torch.where(column == banned, -30000.0, logits.float())
    top = z.amax(-1, keepdim=True)
    log_p = z - top - (z - top).exp().sum(-1, keepdim=True).log()
    hit = column == target[:, None]
    loss = -torch.where(hit, log_p, 0.0).sum(-1)
    best = log_p.amax(-1)
    right = -loss >= best
    cold = (z - top) / TEMPERATURE
    log_q = cold - cold.exp().sum(-1, keepdim=True).log()
    q = log_q.exp()
    entropy = -(q * log_q).sum(-1, keepdim=True)
    force = torch.where(right, certainty, 0.0)[:, None] / TEMPERATURE
    wanted = hit.float()
    if told is not None and share is not None:
        law = torch.where(column == banned, -30000.0, told.float()).softmax(-1)
        wanted = torch.lerp(wanted, law, share[:, None])
    slope = weight[:, None] * (log_p.exp() - wanted) - force * q * (log_q + entropy)
    return slope.to(logits.dtype), loss, right, best.exp()


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        target: Tensor,
        weight: Tensor,
        certainty: Tensor,
        banned: int,
        rule: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]],
        told: Tensor,
        share: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        gradient = torch.empty_like(hidden)
        losses, rights, bests = [], [], []
        for start in range(0, len(hidden), CHUNK):
            some = slice(start, start + CHUNK)
            logits = hidden[some] @ head.T
            taught = (told[some] @ head.T, share[some]) if start < len(told) else ()
            slope, loss, right, best = rule(logits, target[some], weight[some], certainty[some], banned, *taught)
            gradient[some] = slope @ head
            losses.append(loss)
            rights.append(right)
            bests.append(best)
        ctx.save_for_backward(gradient)
        found = torch.cat(losses), torch.cat(rights), torch.cat(bests)
        ctx.mark_non_differentiable(*found)
        return (found[0] * weight).sum(), *found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (ctx.saved_tensors[0] * grads[0], None, None, None, None, None, None, None, None)


class Objective:
    """The loss of states at the read-outs; the mask token itself is never predicted."""

    def __init__(self, head: Tensor, banned: int, compiled: bool) -> None:
        self.head, self.banned = head, banned
        self.rule = torch.compile(slopes, dynamic=False) if compiled else slopes
        self.compiled = compiled

    def __call__(
        self,
        hidden: Tensor,
        target: Tensor,
        weight: Tensor,
        certainty: Tensor,
        told: Tensor | None = None,
        share: float = 0.0,
    ) -> tuple[Tensor, Readouts]:
        """Return the weighted loss, whose gradient includes all terms, and what was found at each read-out.

        `told` are a teacher's states at the first read-outs, which learn its laws for a `share`.
        """
        count = len(hidden)
        taught = 0 if told is None else len(told)
        short = -count % CHUNK if self.compiled else 0  # one compiled shape; rows of weight 0 change nothing
        if short:
            hidden = torch.nn.functional.pad(hidden, (0, 0, 0, short))
            target, weight, certainty = (torch.nn.functional.pad(t, (0, short)) for t in (target, weight, certainty))
        shares = torch.where(torch.arange(len(hidden), device=hidden.device) < taught, share, 0.0)
        told = hidden.new_zeros(0, hidden.shape[1]) if told is None else told
        told = torch.nn.functional.pad(told, (0, 0, 0, min(-taught % CHUNK, len(hidden) - taught)))  # whole chunks
        loss, each, right, best = _Chunks.apply(  # type: ignore[no-untyped-call]
            hidden, self.head, target, weight, certainty, self.banned, self.rule, told, shares
        )
        return loss, Readouts(each[:count], right[:count], best[:count])
