"""Experts inside CUDA graphs: routed on the device, their matrices in stacks of which only the chosen ones are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...kernels.expert_answers import answers
from ...kernels.grouped import combine, grouped
from ...kernels.route import arrange, choose, normed_scores, scores
from ...models.layer_shape import Activation
from ..network.experts import Experts, ExpertsBeside, ExpertSet
from ..network.layer import Loader
from ..network.linear import DenseLinear, GatedMLP, Linear, SquaredMLP

ALONE = 16  # pairs up to which each is computed by itself: they rarely share an expert


@dataclass(frozen=True)
class StackedExperts:
    """All experts of a layer, their matrices in two stacks."""

    first: Tensor  # [count, 2 * hidden, dim], gate and up; [count, hidden, dim] if there is no gate
    first_bias: Tensor | None
    down: Tensor  # [count, dim, hidden]
    down_bias: Tensor | None
    activation: Activation

    @classmethod
    def of(cls, experts: Sequence[GatedMLP | SquaredMLP], activation: Activation) -> StackedExperts:
        """The stacks of experts with whole matrices, copied."""
        entering = [expert.gate_up if isinstance(expert, GatedMLP) else expert.up for expert in experts]
        first, down = [_whole(x) for x in entering], [_whole(expert.down) for expert in experts]
        return cls(*_stacked(first), *_stacked(down), activation)

    def __call__(self, sent: Tensor, ends: Tensor) -> Tensor:
        order = torch.arange(len(sent), dtype=torch.int32, device=sent.device)
        bent = grouped(sent, self.first, self.first_bias, ends, order, activation=self.activation)
        return grouped(bent, self.down, self.down_bias, ends, order)

    def answers(self, x: Tensor, chosen: Tensor, factors: Tensor | None, steady: bool) -> Tensor:
        """What the chosen experts [n, active] say of each token [n, dim], pair by pair [n · active, dim]."""
        order, ends = arrange(chosen, len(self.first))
        entering = self.first, self.first_bias, ends, order
        active, bends = chosen.shape[1], self.activation
        bent = grouped(x, *entering, share=active, activation=bends, factors=factors, steady=steady)
        return grouped(bent, self.down, self.down_bias, ends, order, puts=True, steady=steady)

    def answer(
        self, x: Tensor, chosen: Tensor, weight: Tensor, beside: Tensor | None, residual: Tensor | None, early: bool
    ) -> Tensor:
        """What they say of few tokens, summed in two launches; weighed before they are asked if `early`, else after."""
        entering = self.first, self.first_bias, chosen.view(-1), None
        active, bends, factors = chosen.shape[1], self.activation, weight if early else None
        bent = grouped(x, *entering, share=active, activation=bends, factors=factors, soon=True)
        return answers(bent, self.down, self.down_bias, chosen, weight, beside, residual, weighs=not early)


class StackingLoader(Loader):
    """Reads experts as stacks."""

    def crowd(self, experts: Sequence[GatedMLP | SquaredMLP]) -> ExpertSet:
        return StackedExperts.of(experts, self.checkpoint.shape.activation)


def mixed(
    experts: Experts,
    x: Tensor,
    beside: Tensor | None,
    residual: Tensor | None,
    routed: tuple[Tensor, Tensor],
    steady: bool,
) -> Tensor:
    """What the chosen experts say of normed tokens, weighed and summed; then what stands beside it, and the residual.

    `routed` are the experts of each token and their weights. If it is to be `steady`, a token's bits are the same in
    whatever number of tokens.
    """
    crowd, weigh_inputs = experts.crowd, experts.mixture.weigh_inputs
    assert isinstance(crowd, StackedExperts)
    chosen, weight = routed[0].int(), routed[1]
    if chosen.numel() <= ALONE:
        return crowd.answer(x, chosen, weight, beside, residual, weigh_inputs)
    said = crowd.answers(x, chosen, weight if weigh_inputs else None, steady)
    return combine(said, weight, beside, residual, weighs=not weigh_inputs)


def normed_route(experts: Experts, x: Tensor, norm: Tensor | None, eps: float) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Tokens, normed if there is a norm, and where they go as `route` says."""
    if norm is None:
        return x, route(experts, x)
    router = experts.router
    assert isinstance(router, DenseLinear)
    normed, found = normed_scores(x, norm, eps, router.weight, router.bias)
    return normed, _chosen(experts, found)


def route(experts: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
    """The experts of each token and their weights, both [n, active]."""
    router = experts.router
    assert isinstance(router, DenseLinear)
    return _chosen(experts, scores(x, router.weight, router.bias))


def _chosen(experts: Experts, found: Tensor) -> tuple[Tensor, Tensor]:
    mixture = experts.mixture
    if mixture.open != mixture.groups:
        return experts.choose(found)
    normed = mixture.normed and mixture.active > 1
    return choose(found, mixture.active, experts.bias, mixture.scores == "softmax", normed, mixture.scale)


def beside(
    mlp: ExpertsBeside, x: Tensor, normed: Callable[[Tensor, Tensor | None], Tensor], dense: Tensor, steady: bool
) -> Tensor:
    """Experts beside a perceptron that says `dense` of the tokens x."""
    dim, experts = x.shape[1], mlp.experts
    read = F.rms_norm(x.to(mlp.scale.dtype), (dim,), None, mlp.eps) * mlp.scale * dim**-0.5
    chosen, weight = route(experts, read)
    after_mlp, before, after = mlp.norms
    weight = weight * mlp.expert_scale[chosen.long()]
    said = mixed(experts, normed(x, before), None, None, (chosen, weight), steady)
    return normed(dense, after_mlp) + normed(said, after)


def _whole(matrix: Linear) -> tuple[Tensor, Tensor | None]:
    assert isinstance(matrix, DenseLinear)
    return matrix.weight, matrix.bias


def _stacked(parts: list[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    biases = [bias for _, bias in parts if bias is not None]
    return torch.stack([weight for weight, _ in parts]), torch.stack(biases) if biases else None
