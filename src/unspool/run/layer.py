"""The weights of one layer, fused while they are read: one matrix for queries, keys and values, one for gate and up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..models.shape import Shape
from ..models.weights import Checkpoint
from .linear import Linear, MakeLinear


@dataclass(frozen=True)
class Layer:
    """One layer: h = x + out(attention(turn(qkv(norm(x))))), and then h + down(gate(h) · up(h))."""

    window: int | None
    theta: float  # which rotary turns it
    before_attention: Tensor
    qkv: Linear
    qk_norm: Tensor | None  # [heads + kv_heads, head_dim]
    out: Linear
    after_attention: Tensor | None
    before_mlp: Tensor
    gate_up: Linear
    down: Linear
    after_mlp: Tensor | None


class Loader:
    """Reads tensors of a checkpoint onto a device, each rounded once."""

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, linear: MakeLinear) -> None:
        self.checkpoint, self.dtype, self.device, self.linear = checkpoint, dtype, device, linear

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

    def layer(self, index: int) -> Layer:
        """Return one layer."""
        shape, at = self.checkpoint.shape, f"model.layers.{index}"
        attention, mlp = f"{at}.self_attn", f"{at}.mlp"
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
            gate_up=self.matrix([f"{mlp}.gate_proj", f"{mlp}.up_proj"], shape.mlp_bias),
            down=self.matrix([f"{mlp}.down_proj"], shape.mlp_bias),
            after_mlp=self.norm(after_mlp) if shape.post_norms else None,
        )

    def _stacked(self, names: Sequence[str]) -> Tensor:
        if len(names) == 1:
            return self.tensor(names[0])
        sizes = self.checkpoint.shape.tensors()
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
