"""Forwards of a cached model as CUDA graphs: requests become rows of rectangular buckets, each captured once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.asks import Check
from ...core.errors import BadScores, UnspoolError
from ...core.law import best_of, nothing_left, unpacked
from ...core.verifier import Kernel, kernel_of
from ...core.warp.warp_plan import WarpPlan
from ..cache.forward_request import BestTokens, ForwardRequest, attach_outputs
from ..cache.logits_row import LogitsRow
from ..cache.sequence import CachedSequence
from ..engine.contracts import LAST
from ..network.head_guesses import foresee
from ..network.lookahead_heads import MedusaHeads
from .block_table import BlockTable
from .deferred_capture import DeferredCapture, Wish, includes
from .device_rejection import rejected
from .footprint import CHUNK, FEW, FLOCK, LANES, SHORTEST, WIDEST, lanes_for, portion, step_up
from .fused import Fused
from .graph_bucket import Bucket, Lines
from .graph_states import GraphStates, resume_slots
from .packing import Kind, Packed, Size, packed
from .sampling import Sampling, StepMasks
from .warp_stage import BARE, Shaping

BROKEN, EMPTY = -1, -2  # the tokens of scores that no token can be picked from: NaN or infinite, or all forbidden


class DeviceCheck(NamedTuple):
    """A check that kernels can decide, with the plan of its warps."""

    check: Check
    plan: WarpPlan
    unasked: bool = False  # it has a mask, which is asked after the verdict

    @property
    def rejects(self) -> bool:
        """Whether it is verified by rejection sampling."""
        return kernel_of(self.check.verify) is Kernel.REJECTION and self.plan.temperature > 0


def refused(token: int, plan: WarpPlan) -> UnspoolError:
    """What to tell a request whose scores no token can be picked from, by what was picked instead."""
    if token == EMPTY:
        return nothing_left() if plan.mask is None else plan.mask.refusal()
    return BadScores(
        "the model returned NaN or infinite scores on the device. Its weights or its precision are broken: "
        "try dtype fp32 or bf16, and check the file with `unspool pull --check`."
    )


def usable(tokens: list[int], most: int) -> int:
    """How many tokens were picked from scores that allow it, of the first so many: the text may end before the rest."""
    return next((i for i, token in enumerate(tokens[:most]) if token < 0), most)


class CudaGraphExecutor:
    """Runs requests on a device: rows in rectangular buckets, each a graph that is captured when first needed."""

    chunk = CHUNK

    def __init__(self, network: Fused, sequences: int = LANES, make: Callable[..., Bucket] = Bucket) -> None:
        self.network, self.make = network, make
        longest = step_up(network.context, SHORTEST)
        self.block_table = BlockTable(lanes_for(network.slots.room, sequences), longest, network.device)
        self.buckets: dict[Size, Bucket] = {}
        self._noted = network.slots.noted_states  # where the graphs that are there leave hidden states
        self.makers: dict[Kind, Callable[..., Bucket]] = {}  # of buckets that are of another class
        self.states: GraphStates | None = None  # where layers are recurrent
        if network.recurrent is not None:
            self.states = GraphStates(network, network.recurrent, self.buckets.clear)
        self.deferred: DeferredCapture | None = None  # where graphs are captured when nobody waits

    def defer_capture(self, wishes: Iterable[Wish]) -> None:
        """Capture graphs in `capture_next` from now on, these first, in this order.

        Only where the numbers of a text do not depend on the graph that it runs in.
        """
        if self.network.steady and self.network.device.type == "cuda":
            self.deferred = DeferredCapture(self.buckets)
            for wish in wishes:
                self.deferred.wish(wish)

    def capture_next(self) -> int:
        """Capture the graph that is wanted most; how many are still to be captured."""
        wish = None if self.deferred is None else self.deferred.next()
        if wish is None or self.deferred is None:
            return 0
        try:
            self.of(wish.size, self.makers.get(wish.size.kind, self.make)).rehearse(wish.shaping)
        except torch.OutOfMemoryError:  # those that are there must do
            self.deferred.give_up()
        return len(self.deferred)

    def forward(self, requests: list[ForwardRequest], wants: tuple[int, ...]) -> None:
        """Compute all new tokens and attach laws and hidden states; prompts are read before, chunk by chunk."""
        self.verify(requests, wants, [])

    def verify(
        self,
        requests: list[ForwardRequest],
        wants: tuple[int, ...],
        checks: list[DeviceCheck],
        heads: MedusaHeads | None = None,
    ) -> list[list[int]]:
        """The forward; with checks, the index of each last accepted token and the token after it.

        If there are `heads`, they guess where the accepted path ends; what they read is kept for other places.
        """
        read = self.read_prompts(requests, WIDEST if len(requests) <= FEW else 1)
        rows = [packed(request, done) for request, done in zip(requests, read, strict=True)]
        if self.states is not None:
            rows = self.states.follow(requests, rows, read, ())
        longest = max(row.past + len(row.tokens) for row in rows)
        bits = max(row.past - row.clear + len(row.tokens) for row in rows)
        tokens = max(len(row.tokens) for row in rows)
        if any(row.past > row.clear for row in rows):  # drafts of earlier forwards take bits
            tokens = max(tokens, 2, -(-bits // 2))
        sampling, told = _sampling(checks), bool(wants) or heads is not None
        bucket, shaping = self.serving(Kind.TREE, len(rows), tokens, longest, sampling.shaping, told)
        bucket.fill(rows, self._lines(requests, rows))
        bucket.sampling(sampling, [request.leaf for request in requests[: len(checks)]], shaping)
        bucket.heads = heads
        masked = {
            i * bucket.size.tokens + rows[i].root: each.check.prefix
            for i, each in enumerate(checks)
            if each.plan.mask is not None
        }
        bucket.run(want=wants if heads is None else tuple(sorted({*wants, LAST})), masks=StepMasks(masked))
        self._attach(requests, rows, bucket, wants, heads is not None)
        verdicts: list[list[int]] = []
        if checks and checks[0].rejects:
            verdicts = rejected(bucket, rows, [each.check for each in checks], BROKEN)
        elif checks:
            verdicts = bucket.verdicts[: len(rows), :2].tolist()
            if heads is not None:
                foresee(requests, bucket.ahead)
        return [[index + done, token] for (index, token), done in zip(verdicts, read, strict=False)]

    def _attach(
        self,
        requests: list[ForwardRequest],
        rows: list[Packed],
        bucket: Bucket,
        wants: tuple[int, ...],
        guess: bool,
    ) -> None:
        """Give every request its rows of the step's outputs, copied, since the graph writes its own again."""
        logits, best = bucket.logits.clone(), bucket.best.clone()
        hidden = {layer: bucket.hidden[layer].clone() for layer in wants}
        states = bucket.hidden[LAST].clone() if guess else None
        for number, (request, row) in enumerate(zip(requests, rows, strict=True)):
            first = number * bucket.size.tokens + max(row.root, 0)
            own = slice(first, first + 1 + len(request.added))
            request.likeliest = partial(_likeliest, logits[own], best[own])
            request.states = None if states is None else states[own]
            attach_outputs(request, lambda at: LogitsRow(logits, at), hidden, first)
            self.block_table.kept(request.leaf, row.clear)

    def prefill(self, requests: list[ForwardRequest]) -> None:
        """Read all owed tokens, chunk by chunk: keys and values, no logits."""
        self.read_prompts(requests, 0)

    def read_prompts(self, requests: list[ForwardRequest], width: int) -> list[int]:
        """Read what is owed, chunk by chunk, until at most `width` tokens are left; how many of each were read.

        Unless everything is read, the last token of a text is not.
        """
        done, last = [0] * len(requests), min(width, 1)
        while True:
            left = [i for i, r in enumerate(requests) if len(r) - done[i] > width and len(r.owed) - done[i] > last]
            if not left:
                return done
            counts = [portion(len(requests[i].owed) - last - done[i]) for i in left]
            left = left[: max(1, FLOCK // step_up(max(counts), WIDEST))]
            chunks = [_chunk(requests[i], done[i], count) for i, count in zip(left, counts, strict=False)]
            if self.states is not None:
                needed = [slot for r, read in zip(requests, done, strict=True) for slot in resume_slots(r, read)]
                chunks = self.states.follow([requests[i] for i in left], chunks, [done[i] for i in left], needed)
            longest = max(row.past + len(row.tokens) for row in chunks)
            bucket, _ = self.serving(Kind.FILL, len(chunks), max(len(row.tokens) for row in chunks), longest)
            bucket.fill(chunks, self._lines([requests[i] for i in left], chunks))
            bucket.run()
            for i, row in zip(left, chunks, strict=True):
                done[i] += len(row.tokens)

    def forget(self, sequence: CachedSequence, size: int = 0) -> None:
        """Cut the sequence's line of the block table to `size` tokens; with 0, free the line."""
        if size:
            self.block_table.cut(sequence, size)
        else:
            self.block_table.left(sequence)

    def _lines(self, requests: list[ForwardRequest], rows: list[Packed]) -> Lines:
        return self.block_table.lines([request.leaf for request in requests], [row.behind for row in rows])

    def serving(
        self,
        kind: Kind,
        rows: int,
        tokens: int,
        length: int,
        shaping: Shaping = BARE,
        told: bool = False,
        depth: int = 0,
        drawn: bool = False,
    ) -> tuple[Bucket, Shaping]:
        """The bucket that so many rows are run in now, and the kernels of its graph.

        Where graphs are captured later a wider one may serve, unless its outputs are `told`: then it is the one that
        fits, captured now if need be.
        """
        self._follow_notes()
        size = self.size(kind, rows, _wide(kind, tokens), length)._replace(depth=depth, drawn=drawn)
        found = None if self.deferred is None or told else self.deferred.serving(Wish(size, shaping))
        return found or (self.of(size, self.makers.get(kind, self.make)), shaping)

    def beside(self, bucket: Bucket, shaping: Shaping) -> Shaping:
        """The kernels with which a bucket that serves now does a step of another kind too."""
        there = bucket.shapings if self.deferred is not None else []
        return min((each for each in there if includes(each, shaping)), key=sum, default=shaping)

    def size(self, kind: Kind, rows: int, tokens: int, length: int) -> Size:
        """The size of a bucket: rows and length rounded up, so that few graphs serve many batches."""
        return Size(kind, step_up(rows, 1), tokens, min(step_up(length, SHORTEST), self.block_table.length))

    def of(self, size: Size, make: Callable[..., Bucket]) -> Bucket:
        """The bucket of this size, made by `make` where there is none yet."""
        self._follow_notes()
        if size not in self.buckets:
            self.buckets[size] = make(size, self.network, self.block_table)
        return self.buckets[size]

    def _follow_notes(self) -> None:
        """Forget graphs that leave hidden states where nobody looks: others are noted now than when they were made."""
        if self._noted is not self.network.slots.noted_states:
            self._noted = self.network.slots.noted_states
            self.buckets.clear()


def _likeliest(logits: Tensor, told: Tensor, k: int) -> BestTokens:
    """The k best tokens of every row of logits: what the step has told [rows, 2k], if that is of as many."""
    return unpacked(told.tolist()) if told.shape[1] == 2 * k else best_of(logits, k)


def _wide(kind: Kind, tokens: int) -> int:
    return step_up(tokens, WIDEST if kind is Kind.FILL and tokens > 1 else 1)


def _sampling(checks: Sequence[DeviceCheck]) -> Sampling:
    prompts = [each.check.prefix.prompt for each in checks]
    return Sampling([each.plan for each in checks], prompts, [each.check.chance for each in checks])


def _chunk(request: ForwardRequest, done: int, count: int) -> Packed:
    """A chunk of a prompt. It produces no logits, so parents are left empty."""
    clear, end = len(request.leaf.slots) + done, done + count
    behind = [*request.slots[:done], *(node.slot for node in request.leaf.drafts)]
    places, past = range(clear, clear + count), len(request.leaf.slots) + len(behind)
    return Packed(request.owed[done:end], places, request.slots[done:end], [], clear, behind, [], past, -1, None)
