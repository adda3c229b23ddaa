"""A rank's share of the Llama family: the network of its heads, with a sum over all ranks behind attention and MLP."""

from __future__ import annotations

from dataclasses import replace

import torch

from ...models.share import RankCheckpoint
from ...models.weights import Checkpoint
from ..network.gated_mlp import GatedMLP
from ..network.layer import Layer
from ..network.linear import dense
from ..network.llama import Llama
from ..network.network import Batch
from .collectives import Collectives, ColumnParallel, RowParallel


class Sharded(Llama):
    """The same numbers as `Llama`, up to the order of a sum, if all ranks run the same batch.

    With R ranks, rank r has the heads and hidden numbers of its share, and slots for its key-value heads alone:
    x + Σ_r out_r(attention_r(x)), and then h + Σ_r down_r(bend(gate_r(h))·up_r(h)). The residual stream, norms and
    embedding are whole on every rank, and so are the logits, of which each computes its part of the vocabulary.
    Renewal compares values of all heads, which no rank has: batches with renewals must not come here.

    Cost: two all-reduces [tokens, dim] a layer and one all-gather [read, vocab] a forward.
    """

    @classmethod
    def of(
        cls,
        whole: Checkpoint,
        together: Collectives,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        room: int | None = None,
    ) -> Sharded:
        """Read this rank's share of the weights."""
        network = cls.load(RankCheckpoint(whole, together.share), dtype, device, room)
        ends, shape = network.ends, network.shape
        tokens = together.share.tokens(shape.vocab)
        head = dense(ends.embedding[tokens.start : tokens.stop], None) if shape.tied else ends.head
        network.ends = replace(ends, head=ColumnParallel(head, together, shape.vocab))
        network._stack = [_summed(layer, together) for layer in network._stack]
        return network

    def check(self, batch: Batch) -> None:
        """Refuse a batch that cannot be run, before any rank hears of it."""
        self._check(batch)


def _summed(layer: Layer, together: Collectives) -> Layer:
    assert isinstance(layer.mlp, GatedMLP)  # shares of experts are refused
    mlp = replace(layer.mlp, down=RowParallel(layer.mlp.down, together))
    return replace(layer, out=RowParallel(layer.out, together), mlp=mlp)
