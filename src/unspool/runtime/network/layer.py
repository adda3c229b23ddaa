"""The weights of one layer, fused while they are read: one matrix for queries, keys and values, one for gate and up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...models.shape import Shape
from ...models.weights import Checkpoint
from .. import network as networks
from .gated_mlp import GatedMLP, bend_of
from .linear import EmbeddingAndHead, Linear, MakeLinear, dense

if TYPE_CHECKING:
    from .experts import Experts  # of a few models alone


@dataclass(frozen=True)
class Layer:
    """One layer: h = x + out(attention(turn(qkv(norm(x))))), and then h + mlp(norm(h))."""

    window: int | None
    theta: float  # which rotary turns it
    before_attention: Tensor
    qkv: Linear
    qk_norm: Tensor | None  # [heads + kv_heads, head_dim]
    out: Linear
    after_attention: Tensor | None
    before_mlp: Tensor
    mlp: GatedMLP | Experts
    after_mlp: Tensor | None


class Loader:
    """Reads tensors of a checkpoint onto a device, each rounded once; `router` lays out what chooses experts."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device,
        linear: MakeLinear,
        router: MakeLinear = dense,
    ) -> None:
        self.checkpoint, self.dtype, self.device = checkpoint, dtype, device
        self.linear, self.router = linear, router

    def tensor(self, name: str) -> Tensor:
        """Return one tensor, stored by rows."""
        return self.checkpoint.tensor(name, self.dtype).to(self.device).contiguous()

    def norm(self, name: str) -> Tensor:
        """Return the factors of a norm; Gemma multiplies by them before it rounds, so they stay in float32."""
        wide = self.checkpoint.shape.post_norms and self.dtype.itemsize < torch.float32.itemsize
        return self.checkpoint.tensor(f"{name}.weight", torch.float32 if wide else self.dtype).to(self.device)

    def matrix(self, names: Sequence[str], has_bias: bool) -> Linear:
        """Return the matrices of these names as one, stacked; only one of them is in memory twice at a time."""
        weight = self._stacked([f"{name}.weight" for name in names])
        return self.linear(weight, self._stacked([f"{name}.bias" for name in names]) if has_bias else None)

    def ends(self) -> EmbeddingAndHead:
        """Return embedding and head; a tied head is the embedding itself, unless `linear` lays it out anew."""
        shape = self.checkpoint.shape
        embedding = self.tensor("model.embed_tokens.weight")
        head = self.linear(embedding if shape.tied else self.tensor("lm_head.weight"), None)
        return EmbeddingAndHead(embedding, self.scale(), self.norm("model.norm"), head, self._mask(embedding))

    def scale(self) -> Tensor | None:
        """Return what embeddings are multiplied by, rounded as they are; None for 1."""
        scale = self.checkpoint.shape.embed_scale
        return torch.tensor(scale, dtype=torch.float64).to(self.device, self.dtype) if scale != 1 else None

    def _mask(self, embedding: Tensor) -> Tensor | None:
        filling = self.checkpoint.shape.filling
        if filling is None:
            return None
        return self.tensor("model.mask") if filling.learned else embedding[filling.mask]

    def layer(self, index: int) -> Layer:
        """Return one layer."""
        shape, at = self.checkpoint.shape, f"model.layers.{index}"
        attention = f"{at}.self_attn"
        window = shape.windows[index]
        local = shape.local_rope_theta if window is not None else None
        after_attention, after_mlp = f"{at}.post_attention_layernorm", f"{at}.post_feedforward_layernorm"
        return Layer(
            window=window,
            theta=shape.rope_theta if local is None else local,
            before_attention=self.norm(f"{at}.input_layernorm"),
            qkv=self.matrix([f"{attention}.{part}_proj" for part in "qkv"], shape.qkv_bias),
            qk_norm=self._head_norms(attention) if shape.qk_norm else None,
            out=self.matrix([f"{attention}.o_proj"], shape.out_bias),
            after_attention=self.norm(after_attention) if shape.post_norms else None,
            before_mlp=self.norm(f"{at}.pre_feedforward_layernorm" if shape.post_norms else after_attention),
            mlp=self._perceptron(f"{at}.mlp") if shape.mixture_of(index) is None else self._experts(f"{at}.mlp"),
            after_mlp=self.norm(after_mlp) if shape.post_norms else None,
        )

    def _perceptron(self, at: str) -> GatedMLP:
        shape = self.checkpoint.shape
        gate_up = self.matrix([f"{at}.gate_proj", f"{at}.up_proj"], shape.mlp_bias)
        return GatedMLP(gate_up, self.matrix([f"{at}.down_proj"], shape.mlp_bias), bend_of(shape.activation))

    def _experts(self, at: str) -> Experts:
        """The experts of a layer; what chooses among them is wide, for near ties would go the other way."""
        mixture, wide = self.checkpoint.shape.mixture, torch.promote_types(self.dtype, torch.float32)
        assert mixture is not None
        gate = self.checkpoint.tensor(f"{at}.gate.weight", wide).to(self.device)
        bias = self.checkpoint.tensor(f"{at}.gate.expert_bias", wide).to(self.device) if mixture.biased else None
        experts = [self._perceptron(f"{at}.experts.{number}") for number in range(mixture.count)]
        shared = self._perceptron(f"{at}.shared_experts") if mixture.shared else None
        crowd = networks.experts.crowd_of(experts)
        return networks.experts.Experts(mixture, self.router(gate, None), bias, crowd, shared)

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, ...]]:
        return self.checkpoint.shape.tensors()

    def _stacked(self, names: Sequence[str]) -> Tensor:
        if len(names) == 1:
            return self.tensor(names[0])
        sizes = self._sizes
        rows = sum(sizes[name][0] for name in names)
        whole = torch.empty(rows, *sizes[names[0]][1:], dtype=self.dtype, device=self.device)
        end = 0
        for name in names:
            start, end = end, end + sizes[name][0]
            whole[start:end] = self.checkpoint.tensor(name, self.dtype)
        return whole

    def _head_norms(self, attention: str) -> Tensor:
        shape: Shape = self.checkpoint.shape
        queries = self.norm(f"{attention}.q_norm").expand(shape.heads, -1)
        keys = self.norm(f"{attention}.k_norm").expand(shape.kv_heads, -1)
        return torch.cat((queries, keys))
