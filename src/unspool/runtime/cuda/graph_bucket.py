"""A bucket: one shape of batch with buffers of its own, run as a graph where the device has such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias

import torch
from torch import Tensor

from ...core.canvas import HOLE
from ...core.chance import Role
from ...kernels.advance import advance
from ...kernels.kernel_rows import Rows, Visibility
from ...kernels.philox import uniforms
from ...kernels.pick import pick
from ...kernels.top import top
from ...kernels.verify import verify
from ..cache.sequence import CachedSequence
from ..engine.contracts import LAST
from ..network.lookahead_heads import MedusaHeads
from .block_table import BlockTable
from .captured_step import CapturedStep, side_stream
from .fused import Fused
from .packing import BITS, Kind, Packed, Size, filled, words
from .sampling import Sampling, StepMasks
from .staging_buffer import ReadBack, StagingBuffer
from .state_rows import followed, put_marks, put_states, state_fields
from .text_lines import TextLines
from .turn_notes import TurnNotes
from .warp_stage import BARE, Shaping, WarpStage

STRIDE = 32  # tokens that plain decoding writes at most before it looks up
LOOK = 4  # turns between two looks of the host for tokens that end a text
BEST = 8  # most probable tokens that are told after every node, for those who remember laws

Lines: TypeAlias = tuple[list[int], list[int], list[int]]
"""The lanes of some rows, and what is new in them: indices into the table, and slots."""
Marks: TypeAlias = "Sequence[Sequence[int]]"
"""For every row, the numbers of checkpoints that it starts from and leaves, turn by turn."""


class Bucket:
    """Buffers and, once it has run, a graph for one size."""

    def __init__(self, size: Size, network: Fused, block_table: BlockTable) -> None:
        self.size, self.network, self.block_table = size, network, block_table
        self.staging = StagingBuffer(self.fields(), network.device)
        if size.kind is Kind.WRITE:
            self.written = torch.zeros(size.rows, STRIDE, dtype=torch.int32, device=network.device)
            self.logprobs = torch.zeros(size.rows, STRIDE, 2, dtype=torch.float32, device=network.device)
            self._picked = ReadBack((size.rows,), network.device)
            self.seen = ReadBack((size.rows, LOOK), network.device)
            self.notes = TurnNotes(STRIDE, size.rows, network.vocab, network.device)
        self.logits = torch.empty(0)
        self.verdicts = torch.empty(0)
        self.best = torch.empty(0)  # [n, 2 · BEST]: weights among the best, then their ids
        self.hidden: dict[int, Tensor] = {}
        self.heads: MedusaHeads | None = None
        self.ahead = torch.empty(0)  # [rows, heads, 2 · BEST]: what they guess after each row's last accepted token
        self.shaping = BARE
        self._warps: WarpStage | None = None
        # by the hidden states that are wanted, whether heads guess, and the kernels of warps
        self.graphs: dict[tuple[tuple[int, ...], bool, Shaping], CapturedStep] = {}

    def fields(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """The arrays that a step reads, with their types and sizes."""
        size, whole, real = self.size, torch.int32, torch.float32
        rows, n = size.rows, size.rows * size.tokens
        plan = {"plan": (whole, (rows, STRIDE)), "turn": (whole, (1,))} if size.kind is Kind.WRITE else {}
        return {
            **dict.fromkeys(("tokens", "places", "slots", "parents"), (whole, (n,))),
            **dict.fromkeys(("past", "count", "clear", "lane", "roots"), (whole, (rows,))),
            **dict.fromkeys(("at", "slot"), (whole, (rows * size.entries,))),
            "sees": (whole, (n, size.words)),
            "key_places": (whole, (rows, BITS * size.words)),
            "temperature": (real, (rows,)),
            **dict.fromkeys(("seed", "stream"), (torch.int64, (rows,))),
            **plan,
            **(state_fields(size, STRIDE) if self.network.recurrent else {}),
        }

    def fill(self, rows: list[Packed], lines: Lines) -> None:
        """Write what the rows are; temperatures and noise are the caller's."""
        size, put, trash = self.size, self.staging.put, self.network.slots.trash
        tokens, width = size.tokens, size.words
        self.staging.wait()

        def spread(field: str, rest: int) -> Sequence[int]:
            each: list[Sequence[int]] = [getattr(row, field) for row in rows]
            return each[0] if len(each) == 1 else list(chain(*(filled(x, tokens, rest) for x in each)))

        shown = spread("tokens", 0)
        put("tokens", self.network.shown(list(shown)) if HOLE in shown else shown)
        for field, rest in (("places", 0), ("slots", trash)):
            put(field, spread(field, rest), rest)
        put("count", [len(row.tokens) for row in rows])
        put("past", [row.past for row in rows])
        if self.network.recurrent:
            put_states(self.staging, rows, tokens)
        self._lay(*lines)
        if size.kind is Kind.FILL:
            return
        put("roots", [max(row.root, 0) for row in rows])
        put("parents", [x for row in rows for x in filled(row.parents or [], tokens, -2)], -2)
        if size.tokens > 1:
            put("clear", [row.clear for row in rows])
            put("sees", words(list(spread("sees", 0)), width))
            if self.network.placed:
                put("key_places", [x for row in rows for x in filled(row.key_places, BITS * width, 0)])

    def begin(
        self, tokens: list[int], past: list[int], plan: list[int], turns: int, lines: Lines, marks: Marks = ()
    ) -> None:
        """Write where each row goes on: its last token, how many are before it, and the slots of the next `turns`."""
        put, trash = self.staging.put, self.network.slots.trash
        self.staging.wait()
        put("tokens", tokens)
        put("places", past)
        put("past", past)
        put("slots", plan[::turns], trash)
        put("count", [1] * len(tokens))
        if turns < STRIDE:
            rest = [trash] * (STRIDE - turns)
            plan = [slot for i in range(0, len(plan), turns) for slot in (*plan[i : i + turns], *rest)]
        put("plan", plan, trash)
        put("turn", [0])
        if self.network.recurrent:
            put_marks(self.staging, marks, STRIDE)
        self._lay(*lines)

    def _lay(self, lanes: list[int], at: list[int], slots: list[int]) -> None:
        if len(at) > self.size.rows * self.size.entries:
            self.block_table.write(at, slots)
            at = slots = []
        self.staging.put("lane", lanes, self.block_table.trash)
        self.staging.put("at", at, self.block_table.nowhere)
        self.staging.put("slot", slots)

    def sampling(self, sampling: Sampling, leaves: list[CachedSequence], shaping: Shaping | None = None) -> None:
        """Write how each row is drawn: warps, and the key of its random numbers; `shaping` may include more kernels."""
        self.staging.put("temperature", sampling.temperatures)
        self.staging.put("seed", sampling.seeds)
        self.staging.put("stream", sampling.streams)
        self.shaping = shaping or sampling.shaping
        if self.size.kind is Kind.WRITE:
            self.notes.make(self.shaping.reports, self.shaping.ranks)
        if not (self.shaping.edits or self.shaping.truncates):
            return
        if self._warps is None:
            nodes = self.size.rows * self.size.tokens
            self._warps = WarpStage(self.size.rows, self.lines.padding, self.network.device, nodes, self.network.vocab)
        if self.shaping.masks:
            self._warps.make_masks()
        known = zip(sampling.plans, leaves, strict=True)
        lines = iter(self.lines.lines([leaf for plan, leaf in known if plan.remembers]))
        own = [next(lines) if plan.remembers else None for plan in sampling.plans]
        self._warps.put(sampling.plans, sampling.prompts, own)

    @property
    def shapings(self) -> list[Shaping]:
        """The kernels around the pick of the graphs that are there, of those which tell no hidden states."""
        return [shaping for want, guesses, shaping in self.graphs if not (want or guesses)]

    def rehearse(self, shaping: Shaping) -> None:
        """Capture the graph by running it on padding alone."""
        self.set_empty()
        self.sampling(Sampling([], [], []), [], shaping)
        self.run(masks=StepMasks({}))

    def set_empty(self) -> None:
        """Fill the bucket with padding alone."""
        if self.size.kind is Kind.WRITE:
            self.begin([], [], [], 1, ([], [], []))
        else:
            self.fill([], ([], [], []))

    @property
    def lines(self) -> TextLines:
        """The texts of rows whose warps look back."""
        return self.block_table.texts

    def run(self, turns: int = 1, want: tuple[int, ...] = (), masks: StepMasks | None = None) -> None:
        """Send what was written and run the bucket, `turns` times one after the other.

        Where rows have masks, they are asked for while each forward runs.
        """
        self.send(want)
        parts = self._recorded(want)
        for turn in range(turns):
            parts[0]()
            for decide in parts[1:]:
                assert masks is not None
                self._put_masks(partial(masks.fill, self._picked.read() if turn else ()))
                decide()
                if turn < turns - 1:
                    self._picked.send(self.written[:, turn])

    def send(self, want: tuple[int, ...] = (), *others: Shaping) -> None:
        """Send what was written; graphs that it is run with, its own and with `others`, are captured now if new."""
        self.staging.send()
        if self.network.device.type != "cuda":
            return
        own = self.shaping
        for shaping in (*others, own):
            self.shaping = shaping
            key = want, self.heads is not None, shaping
            if key not in self.graphs:
                self.graphs[key] = self._captured(want)
                self.staging.send()  # running it to capture it has moved its counters on

    def turn(self, shaping: Shaping, fill: Callable[[Tensor], None]) -> None:
        """Run one turn of many with these kernels, which `send` has seen; masks, where they are among them, by `fill`.

        Amendments that were sent come first.
        """
        self.shaping = shaping
        forward, *rest = self._recorded(())
        forward()
        for decide in rest:
            self._put_masks(fill)
            decide()

    def _put_masks(self, fill: Callable[[Tensor], None]) -> None:
        assert self._warps is not None
        self._warps.put_masks(fill)

    def _recorded(self, want: tuple[int, ...]) -> list[Callable[[], None]]:
        """The parts of a step as it is run now."""
        if self.network.device.type != "cuda":
            return [partial(part, want) for part in self._parts]
        graphs, self.verdicts, self.best, self.hidden, self.ahead = self.graphs[
            want, self.heads is not None, self.shaping
        ]
        return [graph.replay for graph in graphs]

    @property
    def _parts(self) -> tuple[Callable[[tuple[int, ...]], None], ...]:
        """What a step is made of: one piece, or two between which masks arrive."""
        return (self._forward, self._decide) if self.shaping.masks else (self._step,)

    def _captured(self, want: tuple[int, ...]) -> CapturedStep:
        side = side_stream(self.network.device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for part in self._parts:
                part(want)  # compiles what is new
        torch.cuda.current_stream().wait_stream(side)
        graphs: list[torch.cuda.CUDAGraph] = []
        for part in self._parts:
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1], pool=self.network.pool):
                part(want)
        return CapturedStep(tuple(graphs), self.verdicts, self.best, self.hidden, self.ahead)

    def _step(self, want: tuple[int, ...] = ()) -> None:
        self._forward(want)
        if self.size.kind is not Kind.FILL:
            self._decide(want)

    @torch.no_grad()
    def _forward(self, want: tuple[int, ...]) -> None:
        """Compute all tokens of the batch, and the logits after each where somebody asks for them."""
        on, size = self.staging.on, self.size
        flat = self.block_table.table.view(-1)
        flat.index_put_((on["at"].long(),), on["slot"])
        if size.kind is Kind.WRITE:  # what this turn computes is what the next one reads
            if self.shaping.ranks:
                looked = self._warps if self.shaping.edits else None
                self.notes.apply(on, *((None, None) if looked is None else (looked.lines, self.lines.texts)))
            flat.index_put_((on["lane"].long() * self.block_table.length + on["past"],), on["slots"])
        x, self.hidden = self.network.run(on["tokens"], self._rows(size.tokens > 1 and size.kind is Kind.TREE), want)
        if LAST in want:
            self.hidden[LAST] = self.network.normed(x)
        if size.kind is not Kind.FILL:
            self.logits = self.network.read(x)

    @torch.no_grad()
    def _decide(self, want: tuple[int, ...]) -> None:
        """Shape the laws, pick or verify, and move on."""
        on, size = self.staging.on, self.size
        noise = self._noise()
        if size.kind is Kind.TREE:
            tree = on["tokens"], on["parents"], on["roots"]
            ends = on["places"].view(size.rows, size.tokens).gather(1, on["roots"].long()[:, None])[:, 0] + 1
            scores, bars = self._shaped(ends, tree)
            self.verdicts = verify(scores, *tree, on["count"], on["temperature"], noise, bars).packed
            values, best = top(self.logits, BEST)
            self.best = torch.cat((values.softmax(1), best.to(values.dtype)), 1)
            if self.heads is not None and LAST in want:
                first = torch.arange(0, size.rows * size.tokens, size.tokens, device=self.logits.device)
                ends, follow = first + self.verdicts[:, 0], self.verdicts[:, 1].clamp(min=0)
                told = self.heads.told(self.hidden[LAST][ends], follow, BEST, top)
                self.ahead = told.view(size.rows, len(self.heads), -1)
            return
        scores, bars = self._shaped(on["past"] + 1)
        picked, logprobs = pick(scores, on["temperature"], noise, on["count"], bars)
        if self.shaping.edits:
            self._remember(picked)
        if self.shaping.reports:
            self.notes.report(self.shaping.reports, self.logits, on, picked, logprobs)
        if self.shaping.ranks:
            self.notes.rank(scores, picked, logprobs, on["turn"])
        moving = (on["tokens"], on["places"], on["slots"], on["past"], on["count"])
        advance(picked, *moving, on["plan"], self.written, logprobs, self.logprobs, on["turn"])

    def _shaped(self, ends: Tensor, tree: tuple[Tensor, Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor | None]:
        """The scores with all warps before the temperature, and the bars of those after it; `ends` are texts' sizes."""
        if self._warps is None or not (self.shaping.edits or self.shaping.truncates):
            return self.logits, None
        on = self.staging.on
        heat, count = on["temperature"], on["count"]
        return self._warps.shape(self.shaping, self.logits, self.lines.texts, ends, heat, count, tree)

    def _remember(self, picked: Tensor) -> None:
        """Append the picked tokens to the texts of rows, which the warps of the next step read."""
        assert self._warps is not None
        texts = self.lines.texts
        at = self._warps.lines.long() * texts.shape[1] + self.staging.on["past"] + 1
        texts.view(-1).index_put_((at,), picked)

    def _rows(self, tree: bool) -> Rows:
        """The batch as kernels take it; the tokens of a tree see what their bits say."""
        on = self.staging.on
        before, into = followed(self.size, on, self.network.slots.trash) if self.network.recurrent else (None, None)
        return Rows(
            table=self.block_table.rows(on["lane"], self.size.length),
            past=on["past"],
            count=on["count"],
            slots=on["slots"],
            places=on["places"],
            sight=Visibility.BITS if tree else Visibility.CAUSAL,
            clear=on["clear"] if tree else None,
            sees=on["sees"] if tree else None,
            key_places=on["key_places"] if tree else None,
            before=before,
            into=into,
        )

    def _noise(self) -> Tensor:
        """The numbers that draw the token after every one of the batch."""
        on = self.staging.on
        seed, stream = (on[name].repeat_interleave(self.size.tokens) for name in ("seed", "stream"))
        return uniforms(seed, stream, on["places"] + 1, Role.PICK)
