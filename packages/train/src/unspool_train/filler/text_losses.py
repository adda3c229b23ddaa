"""What small models are taught: to go on, to fill holes, to fill gaps, to correct themselves, to be certain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .filler_network import SmallNetwork
from .texts import BEGIN, END, MASK, NONE

Texts = Sequence[Sequence[int]]
COLD = 0.5  # the temperature at which dParallel measures entropy


class TextLoss(Protocol):
    """The loss of a batch of texts."""

    def __call__(self, network: SmallNetwork, texts: Texts) -> Tensor:
        """The mean loss, with its gradient."""


def padded(texts: Texts) -> Tensor:
    """Each text after the token that begins it, with tokens that end it up to one more than the longest has."""
    wide = max(map(len, texts)) + 1
    return torch.tensor([[BEGIN, *text, *(END,) * (wide - len(text))] for text in texts])


@dataclass(frozen=True)
class Next:
    """−ln p(xᵢ | x before i): the causal model that AR2Diff begins with."""

    def __call__(self, network: SmallNetwork, texts: Texts) -> Tensor:
        truth = padded(texts)
        return cross_entropy(network(truth[:, :-1]).flatten(0, 1), truth[:, 1:].flatten())


@dataclass(frozen=True)
class Holes:
    """−ln p(xᵢ | what stands) over the holes, their share uniform: masked diffusion (LLaDA, GenMol)."""

    def __call__(self, network: SmallNetwork, texts: Texts) -> Tensor:
        truth = padded(texts)
        holes = torch.rand(truth.shape) < torch.rand(len(truth), 1)
        holes[:, 0] = False
        holes[:, 1] |= ~holes.any(1)
        logits = network(torch.where(holes, MASK, truth))
        return cross_entropy(logits[holes], truth[holes])


@dataclass(frozen=True)
class Unrolled:
    """CE(f(x̃)) + CE(f(x̂)), x̃ with a uniform share of its tokens replaced at random, x̂ drawn from f(x̃).

    So a model learns to mend what it wrote itself (AR2Diff by the objective of SUNDAE). A tenth of the texts is blank
    at first, as the canvas is that decoding begins with.
    """

    def __call__(self, network: SmallNetwork, texts: Texts) -> Tensor:
        truth = padded(texts)
        noise = torch.randint(len((BEGIN, END, MASK, NONE)), network.size.vocab, truth.shape)
        noise = torch.where(torch.rand(len(truth), 1) < 0.1, MASK, noise)
        share = torch.where(noise[:, :1] == MASK, 1.0, torch.rand(len(truth), 1))
        changed = torch.rand(truth.shape) < share
        changed[:, 0] = False
        first = network(torch.where(changed, noise, truth))
        with torch.no_grad():
            drawn = torch.multinomial(first.softmax(2).flatten(0, 1), 1).view(truth.shape)
            drawn[:, 0] = BEGIN
        second = network(drawn)
        losses = [cross_entropy(told[:, 1:].flatten(0, 1), truth[:, 1:].flatten()) for told in (first, second)]
        return (losses[0] + losses[1]) / 2


@dataclass(frozen=True)
class Certain:
    """CE on half of a block and on the other half, and `weight` · entropy where the likeliest token is right.

    What is left of a random place is known, a block of `block` places after it is masked in two complementary halves,
    and all behind it is masked (dParallel). Entropy is that of softmax(logits / 0.5): it falls where the model is
    right, and nothing pushes where it is wrong.
    """

    weight: float = 2.0
    block: int = 16

    def __call__(self, network: SmallNetwork, texts: Texts) -> Tensor:
        truth = padded(texts)
        place = torch.arange(truth.shape[1])
        begins = 1 + (torch.rand(len(truth), 1) * (truth.shape[1] - 1)).long()
        inside = (place >= begins) & (place < begins + self.block)
        half = inside & (torch.rand(truth.shape) < 0.5)
        losses = []
        for holes in (half, inside & ~half):
            logits = network(torch.where(holes | (place >= begins + self.block), MASK, truth))[holes]
            if not len(logits):
                continue
            cold = (logits / COLD).log_softmax(1)
            entropy = -(cold.exp() * cold).sum(1)
            right = logits.argmax(1) == truth[holes]
            forced = (entropy * right).sum() / right.sum().clamp(min=1)
            losses.append(cross_entropy(logits, truth[holes]) + self.weight * forced)
        return torch.stack(losses).sum()


@dataclass(frozen=True)
class Gaps:
    """−ln p of what goes into every gap of a text from which tokens were taken, or that nothing does (POINTER).

    Levels are made from the whole text downwards: from each the lightest tokens are taken of which no two stand side
    by side, until a few of the heaviest are left. The weight of a token is −ln of the share of texts that have it.
    A level is learnt from what is left of it, with a hole in every gap.
    """

    heavy: dict[int, float]

    @staticmethod
    def of(texts: Texts) -> Gaps:
        """The weights that these texts give."""
        counts = Counter(token for text in texts for token in set(text))
        return Gaps({token: -math.log(count / (1 + len(texts))) for token, count in counts.items()})

    def __call__(self, network: SmallNetwork, texts: Texts) -> Tensor:
        rows, wanted = list[list[int]](), list[list[int]]()
        for text in texts:
            levels = self.levels(text)
            row, labels = gapped(levels[int(torch.randint(len(levels), ()))])
            rows.append(row)
            wanted.append(labels)
        wide = max(map(len, rows))
        tokens = torch.tensor([[*row, *(END,) * (wide - len(row))] for row in rows])
        truth = torch.tensor([[*labels, *(-1,) * (wide - len(labels))] for labels in wanted])
        seen = torch.tensor([[i < len(row) for i in range(wide)] for row in rows])
        gaps = truth >= 0
        return cross_entropy(network(tokens, seen)[gaps], truth[gaps])

    def levels(self, text: Sequence[int]) -> list[list[tuple[int, bool]]]:
        """Every level with the tokens that the next one lacks marked; the last ends the text: nothing goes in."""
        found: list[list[tuple[int, bool]]] = [[(token, False) for token in text]]
        kept = list(text)
        while len(kept) > 2:
            gone = lightest([self.heavy.get(token, 0.0) for token in kept])
            found.append([(token, i in gone) for i, token in enumerate(kept)])
            kept = [token for i, token in enumerate(kept) if i not in gone]
        return found


def lightest(weights: Sequence[float]) -> set[int]:
    """The places to take: no two side by side, Σ (heaviest − weight) as large as can be."""
    most = max(weights) + 1e-6
    best, taken = [0.0, 0.0], list[bool]()
    for weight in weights:
        take = best[-2] + most - weight
        taken.append(take > best[-1])
        best.append(max(best[-1], take))
    found, i = set[int](), len(weights) - 1
    while i >= 0:
        if taken[i]:
            found.add(i)
        i -= 2 if taken[i] else 1
    return found


def gapped(level: Sequence[tuple[int, bool]]) -> tuple[list[int], list[int]]:
    """What is left of a level, with a hole in every gap, and what goes into it; −1 where a token stands."""
    row, labels = [BEGIN], [-1]
    inserted = NONE
    for token, gone in level:
        if gone:
            inserted = token
            continue
        row += [MASK, token]
        labels += [inserted, -1]
        inserted = NONE
    return [*row, MASK], [*labels, inserted]
