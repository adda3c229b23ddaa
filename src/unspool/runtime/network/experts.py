"""A mixture of experts: every token is sent to a few perceptrons of many, and their answers weighed (2412.19437)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...models.layer_shape import ExpertSpec
from .linear import DenseLinear, Gated, GatedMLP, Linear, SquaredMLP, rms


class ExpertSet(Protocol):
    """All experts of a layer."""

    def __call__(self, sent: Tensor, ends: Tensor) -> Tensor:
        """What they say of the tokens [n, dim]: those of expert e end before number ends[e], an int32."""


@dataclass(frozen=True)
class ExpertLoop:
    """One after the other, and none that nobody was sent to."""

    experts: Sequence[GatedMLP | SquaredMLP]

    def __call__(self, sent: Tensor, ends: Tensor) -> Tensor:
        parts = torch.tensor_split(sent, ends[:-1].tolist())
        said = [expert(part) for expert, part in zip(self.experts, parts, strict=True) if len(part)]
        return torch.cat(said or [sent])


@dataclass(frozen=True)
class GroupedExperts:
    """All at once: their matrices in two stacks, each multiplied by one grouped kernel, and no word to the host."""

    gate_up: Tensor  # [count, 2 * hidden, dim]
    down: Tensor  # [count, dim, hidden]
    gated: Gated

    @classmethod
    def of(cls, experts: Sequence[GatedMLP]) -> GroupedExperts:
        """The stack of experts with whole matrices, copied."""
        gate_up = torch.stack([_whole(expert.gate_up) for expert in experts])
        return cls(gate_up, torch.stack([_whole(expert.down) for expert in experts]), experts[0].gated)

    def __call__(self, sent: Tensor, ends: Tensor) -> Tensor:
        both = F.grouped_mm(sent, self.gate_up.mT, offs=ends)
        width = both.shape[1] // 2
        return F.grouped_mm(self.gated(both[:, :width], both[:, width:]), self.down.mT, offs=ends)


def crowd_of(experts: Sequence[GatedMLP | SquaredMLP]) -> ExpertSet:
    """Experts as one stack where a grouped kernel is made for them, bfloat16 on a GPU; else each by itself."""
    gated = [expert for expert in experts if isinstance(expert, GatedMLP)]
    stacks = len(gated) == len(experts) and hasattr(F, "grouped_mm")
    stacks = stacks and all(_grouped(part) for e in gated for part in (e.gate_up, e.down))
    return GroupedExperts.of(gated) if stacks else ExpertLoop(experts)


def _grouped(matrix: Linear) -> bool:
    if not isinstance(matrix, DenseLinear) or matrix.bias is not None or matrix.weight.shape[1] % 8:
        return False  # the kernel reads rows of whole 16 bytes
    return matrix.weight.is_cuda and matrix.weight.dtype == torch.bfloat16


def _whole(matrix: Linear) -> Tensor:
    assert isinstance(matrix, DenseLinear)
    return matrix.weight


@dataclass(frozen=True)
class Experts:
    """y = Σ w_e·expert_e(x) over the chosen experts, plus shared(x) where there is such a one.

    s = sigmoid or softmax of router(x), from float32 or better. Of the groups, the `open` with the largest sum of their
    two best s + bias stay; of their experts, the `active` with the largest s + bias are chosen, the first of equals.
    Then w_e = s_e, without the bias; divided by the sum of the chosen if they are several and `normed`; times `scale`.
    Where inputs are weighed, y = Σ expert_e(w_e·x); a shared expert with a gate is multiplied by sigmoid(gate(x)).

    A token's choice and the order of its sum depend on it alone. But the choice jumps: two runs that differ by a
    rounding may choose other experts where two are nearly tied.

    Cost: the matrices of the experts that some token has chosen are read once each; a token pays for `active` of them.
    """

    mixture: ExpertSpec
    router: Linear
    bias: Tensor | None  # [count]
    crowd: ExpertSet
    shared: GatedMLP | SquaredMLP | None
    shared_gate: Linear | None = None

    def __call__(self, x: Tensor) -> Tensor:
        chosen, weight = self.route(x)
        y = self.summed(x, chosen, weight)
        if self.shared is None:
            return y
        if self.shared_gate is None:
            return y + self.shared(x)
        return y + self.shared(x) * self.shared_gate(x.to(weight.dtype)).double().sigmoid().to(x.dtype)

    def summed(self, x: Tensor, chosen: Tensor, weight: Tensor) -> Tensor:
        """What the chosen experts say of each token, weighed and summed."""
        answers = self._answers(x, chosen, weight if self.mixture.weigh_inputs else None)
        return _weighed(answers, torch.ones_like(weight) if self.mixture.weigh_inputs else weight).to(x.dtype)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The experts of each token and their weights, both [n, active]."""
        return self.choose(self.router(x.to(torch.promote_types(x.dtype, torch.float32))))

    def choose(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The same, of what the router says of each token [n, count]."""
        mixture = self.mixture
        # In float64 until the end, since the last bit of a sigmoid or a sum may depend on what stands beside it.
        s = scores.double()
        s = s.sigmoid() if mixture.scores == "sigmoid" else s.softmax(1)
        chosen = _best(self._open(s if self.bias is None else s + self.bias), mixture.active)
        weight = s.gather(1, chosen)
        if mixture.normed and mixture.active > 1:
            weight = weight / weight.sum(1, keepdim=True)
        return chosen, (weight * mixture.scale).to(scores.dtype)

    def _open(self, scores: Tensor) -> Tensor:
        """The scores, with those of groups that a token may not use at −∞."""
        mixture = self.mixture
        if mixture.open == mixture.groups:
            return scores
        grouped = scores.view(len(scores), mixture.groups, -1)
        best = grouped.topk(2).values
        groups = _best(best[:, :, 0] + best[:, :, 1], mixture.open)
        shut = torch.ones_like(best[:, :, 0], dtype=torch.bool).scatter_(1, groups, False)
        return grouped.masked_fill(shut[:, :, None], float("-inf")).view_as(scores)

    def _answers(self, x: Tensor, chosen: Tensor, weight: Tensor | None) -> Tensor:
        """What the chosen experts say of each token [n, active, dim]."""
        count, active = chosen.shape
        sent, order = chosen.flatten().sort(stable=True)
        everyone = torch.arange(self.mixture.count, device=x.device)
        tokens = x[order // active]
        if weight is not None:
            tokens = tokens * weight.flatten()[order, None].to(x.dtype)
        said = self.crowd(tokens, torch.searchsorted(sent, everyone, right=True, out_int32=True))
        return torch.empty_like(said).index_copy_(0, order, said).view(count, active, -1)


@dataclass(frozen=True)
class ExpertsBeside:
    """A perceptron with experts beside it (Gemma 4): norm₁(mlp(norm(x))) + norm₃(Σ w_e·expert_e(norm₂(x))).

    The router reads x without its length, times `scale`/√dim; the weight of an expert is multiplied by its own factor.
    """

    mlp: GatedMLP | SquaredMLP
    experts: Experts
    before_mlp: Tensor
    norms: Sequence[Tensor]  # behind the perceptron, before the experts and behind them
    scale: Tensor  # [dim]
    expert_scale: Tensor  # [count]
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        dim = x.shape[1]
        read = F.rms_norm(x.to(self.scale.dtype), (dim,), None, self.eps) * self.scale * dim**-0.5
        chosen, weight = self.experts.route(read)
        after_mlp, before, after = self.norms
        said = self.experts.summed(rms(x, before, self.eps), chosen, weight * self.expert_scale[chosen])
        dense = rms(self.mlp(rms(x, self.before_mlp, self.eps)), after_mlp, self.eps)
        return dense + rms(said, after, self.eps)


def _weighed(answers: Tensor, weight: Tensor) -> Tensor:
    """Σ w·answer [n, dim], term by term: how a library would sum may depend on how many tokens there are."""
    first, *others = zip(weight[:, :, None].unbind(1), answers.to(weight.dtype).unbind(1), strict=True)
    return reduce(lambda y, term: torch.addcmul(y, *term), others, first[0] * first[1])


def _best(scores: Tensor, count: int) -> Tensor:
    """The numbers of the largest of each row, the first of equals, whatever rows stand beside it."""
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :count]
