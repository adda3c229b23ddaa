"""Filling holes on a GPU: looks go through the same buckets as trees, as rows whose tokens see their whole pane."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.errors import BadRequest
from ..cache.forward_request import Growth
from ..cache.sequence import Leaf
from ..cuda.cuda_graph_model import Graphed
from ..cuda.footprint import WIDEST
from ..cuda.graph_bucket import Kind
from ..cuda.packing import Packed
from .block_diffusion import Canvased
from .denoise_batch import Sheet


class Painted(Canvased, Graphed):
    """A model that reads and fills on a device, for layouts in which the text is read from left to right.

    A look is one replay of a graph: what is owed of the text, each token seeing those before it, and the panes behind
    it, whose tokens see the text and their own pane. A long text is read before, portion by portion.
    """

    def _forwarded(self, sheets: list[Sheet]) -> list[Tensor]:
        """One step over all sheets; for every sheet the logits that it reads."""
        if any(sheet.soft for sheet in sheets):
            raise BadRequest("holes that show mixtures are not computed by kernels; load the model with dtype='fp32'")
        reads = [sheet.reads(self.filling) for sheet in sheets]
        busy = [number for number, sheet in enumerate(sheets) if len(sheet)]
        if not busy:
            return [torch.empty(0)] * len(sheets)
        done = [self._ahead(sheet, own) for sheet, own in zip(sheets, reads, strict=True)]
        self._read_on_pages([(sheets[n], done[n]) for n in busy if done[n]])
        rows = [_packed(sheets[n], done[n]) for n in busy]
        longest = max(row.past + len(row.tokens) for row in rows)
        bucket = self.bucket(Kind.TREE, len(rows), max(2, *(len(row.tokens) for row in rows)), longest)
        bucket.fill(rows, self.lanes.lines([sheets[n].page for n in busy], [row.behind for row in rows]))
        bucket.run()
        logits: list[Tensor] = [torch.empty(0)] * len(sheets)
        for line, (n, row) in enumerate(zip(busy, rows, strict=True)):
            first = line * bucket.size.tokens - done[n]
            wanted = torch.tensor([first + read for read in reads[n]], device=bucket.logits.device)
            logits[n] = bucket.logits.index_select(0, wanted).float()  # the graph writes its own again
            self.lanes.kept(sheets[n].page, row.clear)
        return logits

    def _ahead(self, sheet: Sheet, reads: list[int]) -> int:
        """How many of the owed tokens are read before, so that the rest fits into a step."""
        return min(reads) if len(sheet) > WIDEST and sheet.owed else 0

    def _read_on_pages(self, parts: list[tuple[Sheet, int]]) -> None:
        growths = [Growth(sheet.page, sheet.owed[:count], slots=sheet.slots[:count]) for sheet, count in parts]
        self._read_prompts(growths, 0)

    def _cut(self, page: Leaf, size: int) -> None:
        """Forget what follows on a page, on the device too: other slots may come there."""
        super()._cut(page, size)
        self.lanes.cut(page, size)


def _packed(sheet: Sheet, done: int) -> Packed:
    """A sheet as a row, of whose owed tokens the first `done` are computed already."""
    owed, clear = sheet.owed[done:], sheet.known + done
    tokens, places = list(owed), list(range(clear, len(sheet.text)))
    text = (1 << len(owed)) - 1
    sees = [(2 << i) - 1 for i in range(len(owed))]
    for pane in sheet.panes:
        first = len(tokens)
        whole = text | ((1 << len(pane)) - 1) << first
        sees += [text | ((2 << i) - 1) << first if pane.causal else whole for i in range(len(pane))]
        tokens += pane.tokens
        places += pane.order
    behind = sheet.slots[:done]
    return Packed(tokens, places, sheet.slots[done:], sees, clear, behind, places, clear, len(owed) - 1, None)
