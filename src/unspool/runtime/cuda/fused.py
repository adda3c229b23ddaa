"""The Llama family on fused kernels: a layer is six or seven launches, and a whole step one graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...core.canvas import HOLE
from ...core.errors import BadRequest
from ...kernels.attention import attention
from ...kernels.fewbits import product
from ...kernels.gate import gate
from ...kernels.kernel_rows import Rows
from ...kernels.linear import linear
from ...kernels.norm import add_rms, rms
from ...kernels.rope import rope
from ...kernels.tile import MOST_ROWS
from ...models.layer_shape import RopeSpec
from ..cache.kv_pool import GatherPool
from ..engine.contracts import LAST
from ..network.attention import Attention
from ..network.layer import Layer
from ..network.linear import DenseLinear, GatedMLP, Linear
from ..network.llama import Llama
from ..network.quantised import Int4Linear, Int8Linear
from .fusible import unfused


class Fused(Llama):
    """The same numbers as `Llama` up to rounding, over a rectangular batch: rows × tokens, padding included.

    Keys and values live in loose slots that kernels find through a table, so rows may have any length and share any
    prefix, and a launch depends on the shape of the batch alone. That is what lets a graph replay it.
    """

    _slots: GatherPool
    steady = False  # whether products are cut so that a token's results have the same bits in every batch
    heads_at_once: int | None = None  # that a program turns

    def _pool(self, room: int) -> GatherPool:
        shape, lacking = self.shape, unfused(self.shape)
        if lacking is not None:
            raise BadRequest(f"this {shape.family} model cannot run on the fused kernels: {lacking}. Use `Llama`.")
        return GatherPool(room, shape.layers, shape.kv_heads, shape.head_dim, self.dtype, self.device)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.ends.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""
        return self.ends.embedding.dtype

    @cached_property
    def placed(self) -> bool:
        """Whether the places of drafted keys are asked for: some layer sees only the last tokens."""
        return any(window is not None for window in self.shape.windows)

    @cached_property
    def pool(self) -> Any:
        """The memory of this network's graphs: they never run at the same time, and it ends with the last of them."""
        return torch.cuda.graph_pool_handle()

    @cached_property
    def _inlet(self) -> Tensor:
        """What every token looks like, and behind the last one what a hole does."""
        embedding, mask = self.ends.embedding, self.ends.mask
        return embedding if mask is None else torch.cat((embedding, mask[None].to(embedding)))

    @cached_property
    def _turns(self) -> dict[RopeSpec, tuple[Tensor, Tensor]]:
        return {rope: rotary.table(self.context) for rope, rotary in self._rotaries.items()}

    @cached_property
    def _logits(self) -> dict[int, Tensor]:
        return {}

    @property
    def slots(self) -> GatherPool:
        """Where keys and values live."""
        return self._slots

    def shown(self, tokens: list[int]) -> list[int]:
        """Tokens with holes among them, as what the network looks up."""
        self.refuse_holes()
        return [self.vocab if token == HOLE else token for token in tokens]

    @torch.no_grad()
    def run(self, tokens: Tensor, rows: Rows, want: Sequence[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """What leaves the last layer [n, dim], and what entered the wanted ones."""
        x = F.embedding(tokens, self._inlet)
        if self.ends.scale is not None:
            x = x * self.ends.scale
        hidden: dict[int, Tensor] = {}
        noted = self._slots.noted
        for index, layer in enumerate(self._stack):
            if index in want:
                hidden[index] = x
            if index in noted:
                self._slots.note(index, rows.slots, x)
            x = self._layer(layer, index, x, rows)
        if LAST in noted:
            self._slots.note(LAST, rows.slots, self.normed(x))
        return x, hidden

    @torch.no_grad()
    def read(self, x: Tensor) -> Tensor:
        """The logits [n, vocab], in the network's own type: their float32 values are the same.

        They stand where the next call with as many tokens writes its own, so that graphs do not each keep theirs.
        """
        head = self.ends.head
        assert isinstance(head, DenseLinear)
        if x.shape[0] not in self._logits:
            self._logits[x.shape[0]] = x.new_empty(x.shape[0], self.vocab)
        out = self._logits[x.shape[0]]
        logits = linear(x, head.weight, norm=self.ends.norm, eps=self.shape.norm_eps, out=out, steady=self.steady)
        if self.shape.filling is not None:
            logits[:, self.shape.filling.mask] = float("-inf")
        return logits

    def normed(self, x: Tensor) -> Tensor:
        """What leaves the last norm."""
        return rms(x, self.ends.norm, self.shape.norm_eps)

    def _layer(self, layer: Layer, index: int, x: Tensor, rows: Rows) -> Tensor:
        shape, eps = self.shape, self.shape.norm_eps
        keys, values = self._slots.keys[index], self._slots.values[index]
        mixer = layer.mixer
        assert isinstance(mixer, Attention)
        assert mixer.spec.rope is not None
        both = self._product(mixer.qkv, x, norm=layer.before_attention)
        cos, sin = self._turns[mixer.spec.rope]
        queries = rope(both, mixer.qk_norm, eps, cos, sin, rows.places, rows.slots, keys, values, self.heads_at_once)
        seen = self._attended(queries, keys, values, rows, mixer.spec.window)
        mlp = layer.mlp
        assert isinstance(mlp, GatedMLP)
        assert layer.before_mlp is not None
        if layer.after_attention is None or layer.after_mlp is None:
            x = self._product(mixer.out, seen, residual=x)
            bent = self._product(mlp.gate_up, x, norm=layer.before_mlp, activation=shape.activation)
            return self._product(mlp.down, bent, residual=x)
        added = self._product(mixer.out, seen)
        x, normed = add_rms(x, added, layer.before_mlp, eps, layer.after_attention)
        added = self._product(mlp.down, self._product(mlp.gate_up, normed, activation=shape.activation))
        return add_rms(x, added, layer.before_mlp, eps, layer.after_mlp)[0]

    def _attended(self, queries: Tensor, keys: Tensor, values: Tensor, rows: Rows, window: int | None) -> Tensor:
        """What each token gathers from what it sees."""
        return attention(queries, keys, values, rows, self.shape.query_scale, window)

    def _product(
        self,
        matrix: Linear,
        x: Tensor,
        norm: Tensor | None = None,
        residual: Tensor | None = None,
        activation: str | None = None,
    ) -> Tensor:
        """A matrix with what stands around it, in as few launches as there are kernels for."""
        eps, few = self.shape.norm_eps, x.shape[0] <= MOST_ROWS
        if isinstance(matrix, DenseLinear) or (isinstance(matrix, Int8Linear) and few):
            scale = matrix.scale if isinstance(matrix, Int8Linear) else None
            return linear(
                x,
                matrix.weight,
                matrix.bias,
                scale=scale,
                norm=norm,
                eps=eps,
                residual=residual,
                activation=activation,
                steady=self.steady,
            )
        if norm is not None:
            x = rms(x, norm, eps)
        if isinstance(matrix, Int4Linear) and few:
            bits = matrix.weight, matrix.scale, matrix.least, matrix.bias
            return product(x, *bits, residual=residual, activation=activation)
        y = matrix(x)
        if activation is not None:
            return gate(y, activation)
        return y if residual is None else residual + y
