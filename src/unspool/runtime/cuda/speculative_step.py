"""A speculative step: drafts are made, verified and learnt from on the device, several rounds at a time."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import torch

from ...core.asks import DeviceRound
from ...kernels.grow import grow
from ...kernels.match import match
from ...kernels.remember import LawTable, remember
from ...kernels.settle import settle
from ...kernels.top import top
from ...kernels.verify import verify
from ..cache.sequence import CachedSequence
from .block_table import BlockTable
from .footprint import LAWS, LINES
from .fused import Fused
from .graph_bucket import BEST, Bucket, Lines, Size

MOST = 64  # tokens of a row that may be wanted before anybody looks
ROUNDS = 4  # and rounds: what a text ends in is computed for nothing from there on
TALLY = 4  # numbers that are counted per row: tokens written, tokens wanted, rounds, tokens computed


class DraftMemory:
    """What drafting on a device knows: the tokens of up to `LINES` texts, and the laws that were met.

    A text has a tag of its own, by which its laws are found; so texts do not learn from each other. If there are too
    many, the one that was not written on for longest makes room.
    """

    def __init__(self, length: int, device: torch.device) -> None:
        self.laws = LawTable(LAWS, device)
        self.texts = torch.zeros(LINES + 1, length, dtype=torch.int32, device=device)
        self._tags, self._free = count(1), list(range(LINES))
        self._known: dict[int, DeviceText] = {}  # by id of the text, the one used last at the end

    def line(self, leaf: CachedSequence) -> DeviceText:
        """The line of a text, with all its tokens."""
        line = self._known.pop(id(leaf), None) or self._taken(leaf)
        self._known[id(leaf)] = line
        if line.written < len(leaf.tokens):
            new = torch.tensor(leaf.tokens[line.written :], dtype=torch.int32)
            self.texts[line.number, line.written : len(leaf.tokens)] = new.to(self.texts.device)
            line.written = len(leaf.tokens)
        return line

    def wrote(self, leaf: CachedSequence) -> None:
        """Take note that the device has put down what it wrote itself."""
        self._known[id(leaf)].written = len(leaf.tokens)

    def _taken(self, leaf: CachedSequence) -> DeviceText:
        if not self._free:
            self._gone(next(iter(self._known)))
        weakref.finalize(leaf, self._gone, id(leaf))
        return DeviceText(self._free.pop(), next(self._tags))

    def _gone(self, key: int) -> None:
        line = self._known.pop(key, None)
        if line is not None:
            self._free.append(line.number)


@dataclass
class DeviceText:
    """Where a text stands, the tag of its laws, and how many of its tokens are there."""

    number: int
    tag: int
    written: int = 0


class SpeculatedRun(NamedTuple):
    """What several rounds have made of one row: tokens, the slots of the token before each, and its rounds."""

    tokens: list[int]
    slots: list[int]
    rounds: list[DeviceRound]
    computed: int


class SpeculativeStep(Bucket):
    """A bucket whose step drafts a tree for every row, computes it, and goes on from what stands."""

    def __init__(self, size: Size, network: Fused, block_table: BlockTable, memory: DraftMemory) -> None:
        super().__init__(size, network, block_table)
        self.memory = memory
        room = size.rows, MOST + size.tokens
        self.written, self.kept = (torch.zeros(room, dtype=torch.int32, device=network.device) for _ in range(2))
        self.rounds = torch.zeros(size.rows, 2 * ROUNDS, dtype=torch.int32, device=network.device)

    def fields(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Beside those of a tree: the line of each text and its tag, its tally, and slots to draw from."""
        rows, whole = self.size.rows, torch.int32
        own = {
            "line": (whole, (rows,)),
            "tag": (whole, (rows,)),
            "tally": (whole, (rows, TALLY)),
            "supply": (whole, (rows, self.stock)),
        }
        return super().fields() | own

    @property
    def stock(self) -> int:
        """Slots that a row may use up: one for every token that may be written."""
        return MOST + self.size.tokens

    def set_out(self, leaves: list[CachedSequence], wants: list[int], slots: list[list[int]], lines: Lines) -> None:
        """Write where each row goes on: its text but for the last token is computed; `slots` are its own to use up."""
        put, trash, tokens = self.staging.put, self.network.slots.trash, self.size.tokens
        known = [self.memory.line(leaf) for leaf in leaves]
        self.staging.wait()
        put("tokens", [x for leaf in leaves for x in (leaf.tokens[-1], *[0] * (tokens - 1))])
        put("slots", [slot for own in slots for slot in own[:tokens]], trash)
        put("supply", [s for own in slots for s in (*own[tokens:], *[trash] * (self.stock - len(own) + tokens))], trash)
        put("past", [len(leaf.slots) for leaf in leaves])
        put("line", [line.number for line in known], LINES)
        put("tag", [line.tag for line in known])
        put("tally", [x for want in wants for x in (0, want, 0, 0)])
        self._lay(*lines)

    def told(self, number: int) -> list[SpeculatedRun]:
        """What came of each of the first rows, in one copy."""
        packed = torch.cat((self.staging.on["tally"], self.rounds, self.written, self.kept), 1)[:number].tolist()
        return [self._run_of(row) for row in packed]

    def _run_of(self, row: list[int]) -> SpeculatedRun:
        written, wanted, rounds, computed = row[:TALLY]
        first = TALLY + 2 * ROUNDS
        pairs = row[TALLY:first]
        made = [DeviceRound(drafted, gained) for drafted, gained in zip(pairs[::2], pairs[1::2], strict=True)][:rounds]
        tokens, slots = row[first : first + self.stock], row[first + self.stock :]
        return SpeculatedRun(tokens[: min(written, wanted)], slots[: min(written, wanted)], made, computed)

    @torch.no_grad()
    def _step(self, want: tuple[int, ...] = ()) -> None:
        on, size, memory = self.staging.on, self.size, self.memory
        self.block_table.table.view(-1).index_put_((on["at"].long(),), on["slot"])
        key_places = on["key_places"] if self.network.placed else None
        matches = match(memory.texts, on["line"], on["past"])
        shown = on["tokens"], on["parents"]
        grow(
            memory.laws, *shown, on["places"], on["sees"], key_places, on["count"], on["tally"], on["past"],
            on["clear"], on["line"], on["tag"], matches, memory.texts, self.network.context - 1,
        )  # fmt: skip
        x, _ = self.network.run(on["tokens"], self._rows(tree=True))
        self.logits = self.network.read(x)
        verdicts = verify(self.logits, *shown, on["roots"], on["count"], on["temperature"], self._noise()).packed
        values, best = top(self.logits, BEST)
        remember(memory.laws, values, best, *shown, on["count"], memory.texts, on["line"], on["past"], on["tag"])
        settle(
            verdicts, on["tokens"], on["sees"], on["slots"], on["count"], on["past"], on["lane"],
            self.block_table.table, on["line"], memory.texts, on["supply"], self.written, self.kept,
            self.rounds.view(size.rows, ROUNDS, 2), on["tally"],
        )  # fmt: skip
