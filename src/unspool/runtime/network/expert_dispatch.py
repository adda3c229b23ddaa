"""The experts of a layer at work: tokens lie sorted by the expert they are sent to, and every expert reads its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from .gated_mlp import GatedMLP
from .linear import DenseLinear, Linear


class ExpertSet(Protocol):
    """All experts of a layer."""

    def __call__(self, sent: Tensor, ends: Tensor) -> Tensor:
        """What they say of the tokens [n, dim]: those of expert e end before number ends[e], an int32."""
        ...


@dataclass(frozen=True)
class ExpertLoop:
    """One after the other, and none that nobody was sent to."""

    experts: Sequence[GatedMLP]

    def __call__(self, sent: Tensor, ends: Tensor) -> Tensor:
        parts = torch.tensor_split(sent, ends[:-1].tolist())
        said = [expert(part) for expert, part in zip(self.experts, parts, strict=True) if len(part)]
        return torch.cat(said or [sent])


@dataclass(frozen=True)
class GroupedExperts:
    """All at once: their matrices in two stacks, each multiplied by one grouped kernel, and no word to the host."""

    gate_up: Tensor  # [count, 2 * hidden, dim]
    down: Tensor  # [count, dim, hidden]
    bend: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, experts: Sequence[GatedMLP]) -> GroupedExperts:
        """The stack of experts with whole matrices, copied."""
        gate_up = torch.stack([_whole(expert.gate_up) for expert in experts])
        return cls(gate_up, torch.stack([_whole(expert.down) for expert in experts]), experts[0].bend)

    def __call__(self, sent: Tensor, ends: Tensor) -> Tensor:
        both = F.grouped_mm(sent, self.gate_up.mT, offs=ends)
        width = both.shape[1] // 2
        return F.grouped_mm(self.bend(both[:, :width]).mul_(both[:, width:]), self.down.mT, offs=ends)


def crowd_of(experts: Sequence[GatedMLP]) -> ExpertSet:
    """Experts as one stack where a grouped kernel is made for them, bfloat16 on a GPU; else each by itself."""
    stacks = hasattr(F, "grouped_mm") and all(_grouped(part) for e in experts for part in (e.gate_up, e.down))
    return GroupedExperts.of(experts) if stacks else ExpertLoop(experts)


def _grouped(matrix: Linear) -> bool:
    return isinstance(matrix, DenseLinear) and matrix.weight.is_cuda and matrix.weight.dtype == torch.bfloat16


def _whole(matrix: Linear) -> Tensor:
    assert isinstance(matrix, DenseLinear)
    return matrix.weight
