"""Drawing: a draft model on a device draws a whole chain before the host looks, all its steps recorded as one graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.asks import Draw, Drew
from ...core.chance import Role
from ...core.errors import OutOfRoom
from ...core.law import Drawn, Law
from ...core.tree import NOTHING, ROOT
from ...core.warp.temperature import warmth
from ...kernels.philox import uniforms
from ..cache.cached_model import SlottedSession
from ..cache.logits_at_temperature import Cooled
from ..cache.logits_row import Line
from ..cache.sequence import Leaf, Node
from ..engine.contracts import Asked
from .block_table import Lanes
from .cuda_graph_model import BROKEN, Graphed
from .footprint import SHORTEST, step_up
from .fused import Fused
from .graph_bucket import STRIDE, Bucket, Kind, Size


class Drawing(Graphed):
    """Graphed, and chains of drafts are drawn without leaving the device."""

    draws = True

    def draw(self, asked: Sequence[Asked], draws: Sequence[Draw]) -> list[Drew | None] | None:
        """A chain below every text, whose tokens are then computed as drafts but for the last; None if it cannot be."""
        sessions = [ask.session for ask in asked]
        leaves = [s.leaves[0] for s in sessions if isinstance(s, SlottedSession) and len(s.leaves) == 1]
        if len(leaves) < len(draws) or any(leaf.drafts for leaf in leaves) or not all(draw.simple for draw in draws):
            return None
        heats = [warmth(draw.prefix.warp) or 0.0 for draw in draws]
        longest, wants = max(len(leaf.tokens) for leaf in leaves), [draw.depth for draw in draws]
        depth = max(wants)
        if depth > STRIDE or longest + depth > self.fused.context:
            return None
        read = self._read_ahead(leaves)
        chain = self._chain(len(leaves), depth, longest + depth)
        turns, own = chain.depth, self._own(wants)
        if own is None:
            return None
        trash = self.fused.slots.trash
        plan = [slot for slots in own for slot in (*slots, *[trash] * (turns - len(slots)))]
        try:
            past = [len(leaf.slots) for leaf in leaves]
            chain.begin([leaf.tokens[-1] for leaf in leaves], past, plan, turns, self.lanes.lines(leaves))
            chain.warm(heats, [draw.chance for draw in draws])
            chain.wire.put("round", [draw.first.round for draw in draws])
            chain.run()
            lines = chain.lines.clone()  # the graph writes its own again
            drawn: list[list[int]] = chain.written[: len(leaves), :turns].tolist()
        except BaseException:
            self.slots.drop([slot for slots in own for slot in slots])
            raise
        found: list[Drew | None] = []
        for number, (leaf, heat, slots, tokens) in enumerate(zip(leaves, heats, own, drawn, strict=True)):
            if BROKEN in tokens[: len(slots)]:  # somebody is told when it is scored
                self.slots.drop(slots)
                found.append(None)
                continue
            rows = [turn * chain.size.rows + number for turn in range(len(slots))]
            _hang(leaf, tokens, slots, [Line(lines, row) for row in rows])
            self.lanes.kept(leaf, len(leaf.slots))
            laws = [_law(lines, row, heat, token) for row, token in zip(rows, tokens, strict=False)]
            tree, node = NOTHING, ROOT
            for token, law in zip(tokens, laws, strict=False):
                tree, node = tree.grow(Drawn(token, law), node)
            found.append(Drew(tree, len(slots) + read.get(number, 0)))
        return found

    def _own(self, wants: list[int]) -> list[list[int]] | None:
        """Slots for every text: of its last token, and of all drafts but the last; None if there are too few."""
        try:
            taken = self._taken(sum(wants), None)
        except OutOfRoom:
            return None
        return [[taken.pop() for _ in range(want)] for want in wants]

    def _chain(self, rows: int, depth: int, length: int) -> Chain:
        """A bucket that draws so many tokens; at the end of a text rather one that draws more than a new one."""
        size = Size(Kind.DRAW, step_up(rows, 1), depth, min(step_up(length, SHORTEST), self.lanes.length))
        known = [s for s in self._buckets if s.tokens >= depth and s._replace(tokens=depth) == size]
        size = min(known, default=size, key=lambda s: s.tokens)
        if size not in self._buckets:
            self._buckets[size] = self._made(size)
        chain = self._buckets[size]
        assert isinstance(chain, Chain)
        return chain

    def _made(self, size: Size) -> Bucket:
        return Chain(size, self.fused, self.lanes) if size.kind is Kind.DRAW else super()._made(size)


class Chain(Bucket):
    """A bucket whose step draws `depth` tokens one after the other, and remembers the logits that each came from."""

    def __init__(self, size: Size, network: Fused, lanes: Lanes) -> None:
        super().__init__(size._replace(kind=Kind.WRITE, tokens=1), network, lanes)
        self.depth = size.tokens
        self.lines = torch.empty(0)  # [depth · rows, vocab]

    def fields(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Beside those of writing on: the round that each row's noise belongs to."""
        return super().fields() | {"round": (torch.int32, (self.size.rows,))}

    @torch.no_grad()
    def _step(self, want: tuple[int, ...] = ()) -> None:
        for turn in range(self.depth):
            super()._step()
            if not len(self.lines):
                self.lines = self.logits.new_empty(self.depth * self.size.rows, self.logits.shape[1])
            self.lines[turn * self.size.rows : (turn + 1) * self.size.rows] = self.logits

    def _noise(self) -> Tensor:
        """The numbers that draw the draft after every token of the batch."""
        on = self.wire.on
        return uniforms(on["seed"], on["stream"], on["places"] + 1, Role.DRAFT, round=on["round"])


def _hang(leaf: Leaf, tokens: list[int], slots: list[int], laws: list[Line]) -> None:
    """Take note of what was computed: the text's last token, and the drafts below it."""
    leaf.slots.append(slots[0])
    leaf.law, leaf.hidden = laws[0], {}
    above: Leaf | Node = leaf
    for i, (token, slot, law) in enumerate(zip(tokens, slots[1:], laws[1:], strict=False)):
        node = Node(token, slot, len(leaf.tokens) + i, i, above, law, {})
        above.kids[token] = node
        leaf.drafts.append(node)
        above = node


def _law(lines: Tensor, row: int, heat: float, token: int) -> Law:
    return Cooled(lines, row, heat) if heat else Law.point(token, Line(lines, row))
