"""KOALA's adversary (arXiv 2408.08146): a small judge tells the target's laws from guesses, and guesses learn to pass.

The judge D reads the probabilities of the target's likeliest tokens, by the target or by the drafter, and what is left
of each law; −log D(p) − log(1 − D(q)) is its loss, and −λ·log D(q) is added to the drafter's. It learns beside the
drafter with an optimiser of its own and is in no file. λ, its size and when it begins are ours: the paper's were not
found.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

BEST = 64  # likeliest tokens whose probabilities are judged
WIDE = 128
MOST = 2048  # guesses of a depth that are judged in a step
WEIGHT = 0.05
PATIENCE = 50  # steps of a drafter before the judge is listened to


class Adversary:
    """A perceptron of one hidden layer over log-probabilities, and its optimiser."""

    def __init__(self, device: torch.device, seed: int = 0) -> None:
        dice = torch.Generator().manual_seed(seed)
        self.into = (torch.randn(WIDE, BEST + 1, generator=dice) / (BEST + 1) ** 0.5).to(device).requires_grad_()
        self.out = torch.zeros(1, WIDE, device=device).requires_grad_()
        self.optimiser = torch.optim.Adam([self.into, self.out], lr=1e-3)
        self.steps = 0

    def surprise(self, x: Tensor, head: Tensor, laws: Tensor) -> Tensor:
        """What the drafter is to lessen, −λ·log D(q), after the judge has learned from the same guesses."""
        x, laws = x[:MOST], laws[:MOST].float()
        best = laws.topk(min(BEST, laws.shape[1])).indices
        q = functional.linear(x, head).float().softmax(1)
        ours, theirs = _seen(q, best), _seen(laws, best)
        for truth, seen in ((1.0, theirs), (0.0, ours.detach())):
            said = self._said(seen)
            functional.binary_cross_entropy_with_logits(said, torch.full_like(said, truth)).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.steps += 1
        if self.steps <= PATIENCE:
            return ours.sum() * 0
        into, out = self.into.detach().clone(), self.out.detach().clone()  # it goes on learning
        return (
            -WEIGHT
            * functional.logsigmoid(functional.linear(functional.relu(functional.linear(ours, into)), out)).mean()
        )

    def _said(self, seen: Tensor) -> Tensor:
        return functional.linear(functional.relu(functional.linear(seen, self.into)), self.out)[:, 0]


def _seen(law: Tensor, best: Tensor) -> Tensor:
    """Logarithms of the probabilities of these tokens and of all others together, padded to a fixed width."""
    some = law.gather(1, best)
    whole = torch.cat([some, (1 - some.sum(1, keepdim=True)).clamp(min=0)], 1)
    return functional.pad((whole + 1e-6).log(), (0, BEST - best.shape[1]))
