"""A draft model on a device draws a whole chain before the host looks, all its steps recorded as one graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.asks import Draw, Drew
from ...core.chance import Role
from ...core.errors import OutOfRoom
from ...core.law import Drawn, Law
from ...core.tree import NOTHING, ROOT
from ...kernels.philox import uniforms
from ..cache.cached_model import CachedModel
from ..cache.logits_row import LogitsAtTemperature, LogitsRow
from ..cache.sequence import CachedSequence, CachedSession, DraftNode
from ..engine.contracts import ScoreRequest
from .block_table import BlockTable
from .cuda_graph_executor import CudaGraphExecutor
from .fused import Fused
from .graph_bucket import STRIDE, Bucket
from .packing import Kind, Size
from .sampling import Sampling


class DeviceDrafting:
    """Draws chains of drafts on the device and adds them to their sequences as computed draft nodes."""

    def __init__(self, model: CachedModel, graphs: CudaGraphExecutor) -> None:
        self._model, self._graphs = model, graphs

    def draw(self, asked: Sequence[ScoreRequest], draws: Sequence[Draw]) -> list[Drew | None] | None:
        """A chain below every text, whose tokens are then computed as drafts but for the last; None if it cannot be."""
        model, graphs = self._model, self._graphs
        sessions = [ask.session for ask in asked]
        leaves = [s.leaves[0] for s in sessions if isinstance(s, CachedSession) and len(s.leaves) == 1]
        if len(leaves) < len(draws) or any(leaf.drafts for leaf in leaves) or not all(draw.simple for draw in draws):
            return None
        sampling = Sampling.of([draw.prefix for draw in draws], [draw.chance for draw in draws])
        if sampling is None:
            return None
        temperatures = sampling.temperatures
        longest, wants = max(len(leaf.tokens) for leaf in leaves), [draw.depth for draw in draws]
        depth = max(wants)
        if depth > STRIDE or longest + depth > graphs.network.context:
            return None
        read = model.read_ahead(leaves)
        own = self._own(wants)
        if own is None:
            return None
        marks = [] if graphs.states is None else graphs.states.chains(leaves, own)
        chain = self._chain(len(leaves), depth, longest + depth)
        turns = chain.depth
        trash = graphs.network.slots.trash
        plan = [slot for slots in own for slot in (*slots, *[trash] * (turns - len(slots)))]
        try:
            past, table = [len(leaf.slots) for leaf in leaves], graphs.block_table.lines(leaves)
            chain.begin([leaf.tokens[-1] for leaf in leaves], past, plan, turns, table, marks)
            chain.sampling(sampling, leaves)
            chain.staging.put("round", [draw.first.round for draw in draws])
            chain.run()
            lines = chain.drawn_from.clone()  # the graph writes its own again
            drawn: list[list[int]] = chain.written[: len(leaves), :turns].tolist()
        except BaseException:
            model.slots.drop([slot for slots in own for slot in slots])
            raise
        found: list[Drew | None] = []
        for number, (leaf, temperature, slots, tokens) in enumerate(zip(leaves, temperatures, own, drawn, strict=True)):
            if min(tokens[: len(slots)]) < 0:  # somebody is told when it is scored
                model.slots.drop(slots)
                found.append(None)
                continue
            rows = [turn * chain.size.rows + number for turn in range(len(slots))]
            _hang(leaf, tokens, slots, [LogitsRow(lines, row) for row in rows])
            graphs.block_table.kept(leaf, len(leaf.slots))
            laws = [_law(lines, row, temperature, token) for row, token in zip(rows, tokens, strict=False)]
            tree, node = NOTHING, ROOT
            for token, law in zip(tokens, laws, strict=False):
                tree, node = tree.grow(Drawn(token, law), node)
            found.append(Drew(tree, len(slots) + read.get(number, 0)))
        return found

    def _own(self, wants: list[int]) -> list[list[int]] | None:
        """Slots for every text: of its last token, and of all drafts but the last; None if there are too few."""
        try:
            taken = self._model.take(sum(wants))
        except OutOfRoom:
            return None
        return [[taken.pop() for _ in range(want)] for want in wants]

    def _chain(self, rows: int, depth: int, length: int) -> DraftChainGraph:
        """A bucket that draws so many tokens; at the end of a text rather one that draws more than a new one."""
        size = self._graphs.size(Kind.DRAW, rows, depth, length)
        known = [s for s in self._graphs.buckets if s.tokens >= depth and s._replace(tokens=depth) == size]
        chain = self._graphs.of(min(known, default=size, key=lambda s: s.tokens), DraftChainGraph)
        assert isinstance(chain, DraftChainGraph)
        return chain


class DraftChainGraph(Bucket):
    """A bucket whose step draws `depth` tokens one after the other, and remembers the logits that each came from."""

    def __init__(self, size: Size, network: Fused, block_table: BlockTable) -> None:
        super().__init__(size._replace(kind=Kind.WRITE, tokens=1), network, block_table)
        self.depth = size.tokens
        self.drawn_from = torch.empty(0)  # [depth · rows, vocab]

    def fields(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Beside those of writing on: the round that each row's noise belongs to."""
        return super().fields() | {"round": (torch.int32, (self.size.rows,))}

    @torch.no_grad()
    def _step(self, want: tuple[int, ...] = ()) -> None:
        for turn in range(self.depth):
            super()._step()
            if not len(self.drawn_from):
                self.drawn_from = self.logits.new_empty(self.depth * self.size.rows, self.logits.shape[1])
            self.drawn_from[turn * self.size.rows : (turn + 1) * self.size.rows] = self.logits

    def _noise(self) -> Tensor:
        """The numbers that draw the draft after every token of the batch."""
        on = self.staging.on
        return uniforms(on["seed"], on["stream"], on["places"] + 1, Role.DRAFT, round=on["round"])


def _hang(leaf: CachedSequence, tokens: list[int], slots: list[int], laws: list[LogitsRow]) -> None:
    """Add the computed nodes to a sequence: its last token, and the drafts below it."""
    leaf.slots.append(slots[0])
    leaf.law, leaf.hidden = laws[0], {}
    above: CachedSequence | DraftNode = leaf
    for i, (token, slot, law) in enumerate(zip(tokens, slots[1:], laws[1:], strict=False)):
        node = DraftNode(token, slot, len(leaf.tokens) + i, i, above, law, {})
        above.kids[token] = node
        leaf.drafts.append(node)
        above = node


def _law(lines: Tensor, row: int, temperature: float, token: int) -> Law:
    return LogitsAtTemperature(lines, row, temperature) if temperature else Law.point(token, LogitsRow(lines, row))
