"""Looks on a GPU go through the same buckets as trees, as rows whose tokens see their whole masked span."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.errors import BadRequest
from ...models.shape import DiffusionSpec
from ..cache.forward_request import ForwardRequest
from ..cuda.cuda_graph_executor import CudaGraphExecutor
from ..cuda.footprint import LANES, WIDEST
from ..cuda.fused import Fused
from ..cuda.graph_model import on_device
from ..cuda.packing import Kind, Packed
from ..network.network import Stages
from .block_diffusion import BlockDiffusionModel
from .denoise_batch import DenoiseBatch


def graph_diffusion(
    network: Fused, spec: DiffusionSpec, prefix_cache: int = 0, sequences: int = LANES
) -> BlockDiffusionModel:
    """A model that reads and fills on a device, for layouts in which the text is read from left to right."""
    graphs = CudaGraphExecutor(network, sequences)
    model = BlockDiffusionModel(network, spec, prefix_cache, graphs, GraphDenoiser(graphs, spec))
    on_device(model, speculates=False)
    return model


class GraphDenoiser:
    """Looks by replays of a graph.

    A row has what is owed of the text, each token seeing those before it, and the masked spans behind it, whose tokens
    see the text and their own span. A long text is read before, chunk by chunk.
    """

    def __init__(self, graphs: CudaGraphExecutor, spec: DiffusionSpec) -> None:
        self._graphs, self._spec = graphs, spec

    def stages(self, batches: list[DenoiseBatch]) -> Stages[list[Tensor]]:
        yield from ()  # a replay does not pause
        return self._logits(batches)

    def _logits(self, batches: list[DenoiseBatch]) -> list[Tensor]:
        if any(batch.soft for batch in batches):
            raise BadRequest("holes that show mixtures are not computed by kernels; load the model with dtype='fp32'")
        graphs = self._graphs
        reads = [batch.reads(self._spec) for batch in batches]
        busy = [number for number, batch in enumerate(batches) if len(batch)]
        if not busy:
            return [torch.empty(0)] * len(batches)
        done = [_ahead(batch, own) for batch, own in zip(batches, reads, strict=True)]
        self._read([(batches[n], done[n]) for n in busy if done[n]])
        rows = [_packed(batches[n], done[n]) for n in busy]
        longest = max(row.past + len(row.tokens) for row in rows)
        widest = max(2, *(len(row.tokens) for row in rows))
        bucket, _ = graphs.serving(Kind.TREE, len(rows), widest, longest, told=True)
        bucket.fill(rows, graphs.block_table.lines([batches[n].page for n in busy], [row.behind for row in rows]))
        bucket.run()
        logits: list[Tensor] = [torch.empty(0)] * len(batches)
        for line, (n, row) in enumerate(zip(busy, rows, strict=True)):
            first = line * bucket.size.tokens - done[n]
            wanted = torch.tensor([first + read for read in reads[n]], device=bucket.logits.device)
            logits[n] = bucket.logits.index_select(0, wanted).float()  # the graph writes its own again
            graphs.block_table.kept(batches[n].page, row.clear)
        return logits

    def _read(self, parts: list[tuple[DenoiseBatch, int]]) -> None:
        """Read the beginnings of long texts before, chunk by chunk."""
        requests = [ForwardRequest(batch.page, batch.owed[:count], slots=batch.slots[:count]) for batch, count in parts]
        self._graphs.prefill(requests)


def _ahead(batch: DenoiseBatch, reads: list[int]) -> int:
    """How many of the owed tokens are read before, so that the rest fits into a step."""
    return min(reads) if len(batch) > WIDEST and batch.owed else 0


def _packed(batch: DenoiseBatch, done: int) -> Packed:
    """A batch as a row, of whose owed tokens the first `done` are computed already."""
    owed, clear = batch.owed[done:], batch.known + done
    tokens, places = list(owed), list(range(clear, len(batch.text)))
    text = (1 << len(owed)) - 1
    sees = [(2 << i) - 1 for i in range(len(owed))]
    for span in batch.spans:
        first = len(tokens)
        sees += [text | span.seen(i) << first for i in range(len(span))]
        tokens += span.tokens
        places += span.order
    behind = batch.slots[:done]
    return Packed(tokens, places, batch.slots[done:], sees, clear, behind, places, clear, len(owed) - 1, None)
