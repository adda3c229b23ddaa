"""The Llama family on fused kernels: a layer is six or seven launches, and a whole step one graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ..kernel.attention import attention
from ..kernel.linear import linear
from ..kernel.norm import add_rms, rms
from ..kernel.rope import rope
from ..kernel.rows import Rows
from .layer import Layer
from .linear import Dense
from .llama import Llama
from .loose import Loose


class Fused(Llama):
    """The same numbers as `Llama` up to rounding, over a rectangular batch: rows × tokens, padding included.

    Keys and values live in loose slots that kernels find through a table, so rows may have any length and share any
    prefix, and a launch depends on the shape of the batch alone. That is what lets a graph replay it.
    """

    _slots: Loose

    def _pool(self, room: int) -> Loose:
        shape = self.shape
        return Loose(room, shape.layers, shape.kv_heads, shape.head_dim, self.dtype, self.device)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self._ends.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""
        return self._ends.embedding.dtype

    @cached_property
    def windowed(self) -> bool:
        """Whether some layer sees only the last tokens."""
        return any(window is not None for window in self.shape.windows)

    @cached_property
    def _turns(self) -> dict[float, tuple[Tensor, Tensor]]:
        return {theta: rotary.table(self.context) for theta, rotary in self._rotaries.items()}

    @property
    def slots(self) -> Loose:
        """Where keys and values live."""
        return self._slots

    @torch.no_grad()
    def run(self, tokens: Tensor, rows: Rows, want: Sequence[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """What leaves the last layer [n, dim], and what entered the wanted ones."""
        x = F.embedding(tokens, self._ends.embedding)
        if self._ends.scale is not None:
            x = x * self._ends.scale
        hidden: dict[int, Tensor] = {}
        for index, layer in enumerate(self._stack):
            if index in want:
                hidden[index] = x
            x = self._layer(layer, index, x, rows)
        return x, hidden

    @torch.no_grad()
    def read(self, x: Tensor) -> Tensor:
        """The logits [n, vocab], in the network's own type: their float32 values are the same."""
        head = self._ends.head
        assert isinstance(head, Dense)
        return linear(x, head.weight, norm=self._ends.norm, eps=self.shape.norm_eps)

    def normed(self, x: Tensor) -> Tensor:
        """What leaves the last norm."""
        return rms(x, self._ends.norm, self.shape.norm_eps)

    def _layer(self, layer: Layer, index: int, x: Tensor, rows: Rows) -> Tensor:
        shape, eps = self.shape, self.shape.norm_eps
        qkv, out, gate_up, down = layer.qkv, layer.out, layer.gate_up, layer.down
        assert isinstance(qkv, Dense)
        assert isinstance(out, Dense)
        assert isinstance(gate_up, Dense)
        assert isinstance(down, Dense)
        keys, values = self._slots.keys[index], self._slots.values[index]
        both = linear(x, qkv.weight, qkv.bias, norm=layer.before_attention, eps=eps)
        cos, sin = self._turns[layer.theta]
        queries = rope(both, layer.qk_norm, eps, cos, sin, rows.places, rows.slots, keys, values)
        seen = attention(queries, keys, values, rows, shape.query_scale, layer.window)
        if layer.after_attention is None or layer.after_mlp is None:
            x = linear(seen, out.weight, out.bias, residual=x)
            bent = linear(x, gate_up.weight, gate_up.bias, norm=layer.before_mlp, eps=eps, activation=shape.activation)
            return linear(bent, down.weight, down.bias, residual=x)
        added = linear(seen, out.weight, out.bias)
        x, normed = add_rms(x, added, layer.before_mlp, eps, layer.after_attention)
        bent = linear(normed, gate_up.weight, gate_up.bias, activation=shape.activation)
        added = linear(bent, down.weight, down.bias)
        return add_rms(x, added, layer.before_mlp, eps, layer.after_mlp)[0]
