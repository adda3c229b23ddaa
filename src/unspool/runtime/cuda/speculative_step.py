"""A speculative step: drafts are made, verified and learnt from on the device, several rounds at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

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
from .graph_bucket import BEST, Bucket, Lines
from .graph_drafter import GraphDrafter, Round
from .graph_states import Lent
from .packing import Size
from .state_rows import settle_states
from .text_lines import TextLines

MOST = 64  # tokens of a row that may be wanted before anybody looks
ROUNDS = 8  # and rounds: what a text ends in is computed for nothing from there on
TALLY = 4  # numbers that are counted per row: tokens written, tokens wanted, rounds, tokens computed


class DraftMemory:
    """What drafting on a device knows: the tokens of up to `LINES` texts, and the laws that were met.

    The laws of a text are found by its serial number; so texts do not learn from each other.
    """

    def __init__(self, length: int, device: torch.device) -> None:
        self.laws = LawTable(LAWS, device)
        self.lines = TextLines(LINES, length, device)

    @property
    def texts(self) -> Tensor:
        """The tokens of all texts, a line each."""
        return self.lines.texts


class SpeculatedRun(NamedTuple):
    """What several rounds have made of one row: tokens, the slots of the token before each, and its rounds."""

    tokens: list[int]
    slots: list[int]
    rounds: list[DeviceRound]
    computed: int
    state: int = -1  # the checkpoint behind its last slot, where there is one

    def until(self, count: int) -> SpeculatedRun:
        """Its first so many tokens, and the rounds that they came in."""
        rounds, left = [], count
        for drafted, gained in self.rounds:
            if left > 0:
                rounds.append(DeviceRound(drafted, min(gained, left)))
                left -= gained
        state = self.state if count == len(self.tokens) else -1
        return SpeculatedRun(self.tokens[:count], self.slots[:count], rounds, self.computed, state)


class SpeculativeStep(Bucket):
    """A bucket whose step drafts a tree for every row, computes it, and goes on from what stands.

    If its size has a depth, a trained drafter reads a tree of so many levels first, and the draft is grown from it.
    """

    def __init__(
        self, size: Size, network: Fused, block_table: BlockTable, memory: DraftMemory, drafter: GraphDrafter | None
    ) -> None:
        super().__init__(size, network, block_table)
        self.memory, self.drafter = memory, drafter if size.depth else None
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
    def lines(self) -> TextLines:
        """The texts that drafts are made from are those that warps look back at."""
        return self.memory.lines

    @property
    def stock(self) -> int:
        """Slots that a row may use up: one for every token that may be written."""
        return MOST + self.size.tokens

    def set_empty(self) -> None:
        """Write that there is no row."""
        self.set_out([], [], [], ([], [], []))

    def set_out(
        self,
        leaves: list[CachedSequence],
        wants: list[int],
        slots: list[list[int]],
        lines: Lines,
        lent: Sequence[Lent] = (),
    ) -> None:
        """Write where each row goes on: its text but for the last token is computed; `slots` are its own to use up."""
        put, trash, tokens = self.staging.put, self.network.slots.trash, self.size.tokens
        known = self.memory.lines.lines(leaves)
        self.staging.wait()
        put("tokens", [x for leaf in leaves for x in (leaf.tokens[-1], *[0] * (tokens - 1))])
        put("slots", [slot for own in slots for slot in own[:tokens]], trash)
        put("supply", [s for own in slots for s in (*own[tokens:], *[trash] * (self.stock - len(own) + tokens))], trash)
        put("past", [len(leaf.slots) for leaf in leaves])
        put("line", [line.number for line in known], LINES)
        put("tag", [line.serial for line in known])
        put("tally", [x for want in wants for x in (0, want, 0, 0)])
        if self.network.recurrent:
            put("start", [row.start for row in lent])
            put("spare", [row.own[tokens] for row in lent])
            put("into", [number for row in lent for number in row.own[:tokens]], -1)
        self._lay(*lines)

    def told(self, number: int) -> list[SpeculatedRun]:
        """What came of each of the first rows, in one copy."""
        start = [self.staging.on["start"][:, None]] if self.network.recurrent else []
        packed = torch.cat((self.staging.on["tally"], self.rounds, self.written, self.kept, *start), 1)[
            :number
        ].tolist()
        return [self._run_of(row) for row in packed]

    def _run_of(self, row: list[int]) -> SpeculatedRun:
        written, wanted, rounds, computed = row[:TALLY]
        first = TALLY + 2 * ROUNDS
        pairs = row[TALLY:first]
        made = [DeviceRound(drafted, gained) for drafted, gained in zip(pairs[::2], pairs[1::2], strict=True)][:rounds]
        tokens, slots = row[first : first + self.stock], row[first + self.stock : first + 2 * self.stock]
        state = row[-1] if self.network.recurrent and written <= wanted else -1
        return SpeculatedRun(tokens[: min(written, wanted)], slots[: min(written, wanted)], made, computed, state)

    @torch.no_grad()
    def _step(self, want: tuple[int, ...] = ()) -> None:
        on, size, memory = self.staging.on, self.size, self.memory
        self.block_table.table.view(-1).index_put_((on["at"].long(),), on["slot"])
        key_places = on["key_places"] if self.network.placed else None
        matches = match(memory.texts, on["line"], on["past"])
        shown = on["tokens"], on["parents"]
        ahead = None
        if self.drafter is not None:
            texts = on["line"], on["tag"], memory.texts, memory.laws
            noise = on["temperature"] if size.drawn else None, on["seed"], on["stream"]
            begun = Round(on["tokens"], on["lane"], on["past"], on["tally"], *texts, *noise)
            ahead = self.drafter.draft(begun, size.depth, size.length)
        grow(
            memory.laws, *shown, on["places"], on["sees"], key_places, on["count"], on["tally"], on["past"],
            on["clear"], on["line"], on["tag"], matches, memory.texts, self.network.context - 1, ahead,
        )  # fmt: skip
        x, _ = self.network.run(on["tokens"], self._rows(tree=True))
        self.logits = self.network.read(x)
        if self.drafter is not None:
            self.drafter.read(*shown, on["places"], on["slots"], on["lane"], on["past"])
        tree = *shown, on["roots"]
        scores, bars = self._shaped(on["past"] + 1, tree)
        verdicts = verify(scores, *tree, on["count"], on["temperature"], self._noise(), bars).packed
        values, best = top(self.logits, BEST)
        if self.network.recurrent:
            settle_states(on, verdicts[:, 0])
        remember(memory.laws, values, best, *shown, on["count"], memory.texts, on["line"], on["past"], on["tag"])
        settle(
            verdicts, on["tokens"], on["sees"], on["slots"], on["count"], on["past"], on["lane"],
            self.block_table.table, on["line"], memory.texts, on["supply"], self.written, self.kept,
            self.rounds.view(size.rows, ROUNDS, 2), on["tally"],
        )  # fmt: skip
