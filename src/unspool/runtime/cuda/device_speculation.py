"""Speculative decoding that stays on the device: drafting, verifying and accepting without the host, where it pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TypeAlias

from ...core.asks import DeviceRound, Write, Written
from ...core.errors import OutOfRoom, UnspoolError
from ...core.warp.warp_plan import WarpPlan, count_following, mask_of
from ..cache.cached_model import CachedModel
from ..cache.sequence import CachedSequence
from ..drafter.drafter_network import DrafterNetwork
from .block_table import BlockTable
from .cuda_graph_executor import CudaGraphExecutor, refused, usable
from .deferred_capture import Wish, speculative_ladder
from .footprint import step_up
from .fused import Fused
from .graph_drafter import GraphDrafter, undraftable
from .graph_states import GraphStates, Lent
from .packing import Kind, Size
from .sampling import Sampling
from .speculation_gate import DRAWN, MASKED, Drafting, SpeculationGate, Way
from .speculative_step import MOST, ROUNDS, DraftMemory, SpeculatedRun, SpeculativeStep
from .warp_stage import Shaping

BATCH = 64  # tokens of a speculative step, of all rows together: from there on they cost more than they bring
NARROW, WIDE = 4, 64  # tokens of one row
USUAL = 32  # tokens of a row that methods ask for unless told otherwise
CARRIED = 16  # tokens of one row where each of them writes a state
MANY = 16  # rows that speculate together at most: a fuller forward has no room for drafts
TRIAL = 4  # rounds of speculation that is not known to pay: a look of the host takes as long as one of them
DEPTH = 2  # levels of the tree that a trained drafter reads: more cost more than they bring (bench/leap.py)
FEW = 16  # tokens of a row with a trained drafter: the likeliest few are right more often, and more cost more
LEAST = 8  # tokens of a vocabulary: a law is remembered by so many

Replies: TypeAlias = "list[Written | UnspoolError] | None"
Steps: TypeAlias = Callable[[list[CachedSequence], Sequence[Write], Sampling, int], Replies]


class DeviceSpeculation:
    """Writes on with drafts that never leave the device.

    1. The gate decides whether to speculate at all, by the clock: seconds of a plain and of a speculative step, and
       what the rounds of each text have brought lately.
    2. A tree is drafted for every row from what its text repeats and from the laws that were met in it.
    3. One forward scores all trees, and sample matching verifies them, so the text is that of plain decoding.
    4. The rows go on from what stands, a few rounds before the host looks.
    """

    def __init__(self, model: CachedModel, graphs: CudaGraphExecutor) -> None:
        self._model, self._graphs = model, graphs
        self.memory, self.gate = DraftMemory(graphs.block_table.length, graphs.network.device), SpeculationGate()
        graphs.makers[Kind.SPECULATE] = self._made
        self.drafter: GraphDrafter | None = None
        self.depth, self.few = DEPTH, FEW

    def takes(self, leaves: list[CachedSequence], writes: Sequence[Write], sampling: Sampling) -> bool:
        """Whether these texts may be written so: prompts are read, all want drafts, and they are few.

        A text with a mask may if it is greedy: how far it stands is found out afterwards.
        """
        ready = all(len(leaf.tokens) - len(leaf.slots) <= 1 for leaf in leaves)
        ready = ready and not any(plan.mask is not None and plan.temperature > 0 for plan in sampling.plans)
        return ready and step_up(len(leaves), 1) <= MANY and self._width(writes) >= NARROW

    def _width(self, writes: Sequence[Write]) -> int:
        """Tokens of a row; 0 if somebody wants no drafts."""
        ahead = min(write.ahead for write in writes)
        return min(step_up(ahead + 1, 1), self._widest(len(writes))) if ahead else 0

    def _widest(self, rows: int) -> int:
        """Tokens of each of so many rows at most; where every node leaves a state, fewer."""
        return widest(rows) if self._graphs.states is None else min(CARRIED, widest(rows))

    def ladder(self, rows: int) -> Iterator[Wish]:
        """The graphs that up to so many texts need."""

        def usual(texts: int) -> tuple[int, ...]:
            return widths(min(self._widest(texts), USUAL))

        return speculative_ladder(min(rows, MANY), self._graphs.block_table.length, usual)

    def write(
        self, leaves: list[CachedSequence], writes: Sequence[Write], sampling: Sampling, turns: int, steps: Steps
    ) -> Replies:
        """Write on in speculative steps where they pay, else in plain `steps`; both are timed."""
        known, began = len(self._graphs.buckets), perf_counter()
        for leaf, plan in zip(leaves, sampling.plans, strict=True):
            if plan.temperature > 0 or plan.mask is not None:
                self.gate.draws(leaf, DRAWN if plan.mask is None else MASKED)
        chosen = self.gate.pays(leaves, self._choices(self._width(writes)))
        replies = None if chosen is None else self._speculate(leaves, writes, sampling, turns, steps, chosen)
        if replies is None:
            chosen, replies = None, steps(leaves, writes, sampling, turns)
        if replies is None:
            return None
        rounds = 1
        for leaf, reply in zip(leaves, replies, strict=True):
            if isinstance(reply, Written):
                rounds = max(rounds, reply.forwards or len(reply.tokens))
                if chosen is None:
                    self.gate.stepped(leaf, len(reply.tokens), len(leaves))
                else:  # what a mask has cut counts as well: all rounds, and a step that had to follow them
                    self.gate.speculated(leaf, reply.forwards, len(reply.tokens), chosen, len(leaves))
        if known == len(self._graphs.buckets):  # nothing was captured on the way
            self.gate.took(len(leaves), chosen, (perf_counter() - began) / rounds)
        return replies

    def _choices(self, width: int) -> tuple[Drafting, ...]:
        """How rows of up to so many tokens may be drafted for: by narrow trees, wider ones, those of a drafter."""
        recalled = tuple(Drafting(Way.RECALL, each) for each in widths(width))
        return recalled if self.drafter is None else (*recalled, Drafting(Way.CHAIN, min(width, self.few)))

    def _speculate(
        self,
        leaves: list[CachedSequence],
        writes: Sequence[Write],
        sampling: Sampling,
        turns: int,
        steps: Steps,
        chosen: Drafting,
    ) -> Replies:
        """Some rounds, or None where they cannot be made; a text of which a mask leaves nothing takes a plain step."""
        model, graphs, (way, width) = self._model, self._graphs, chosen
        longest = max(len(leaf.tokens) for leaf in leaves)
        room = graphs.network.context - longest
        if room < 1:
            return None
        model.read_ahead(leaves)
        wants = [min(write.most, MOST, room) for write in writes]
        each = max(wants) - 1 + 2 * width  # what may be kept, and a tree
        try:
            taken = model.take(each * len(leaves))
        except OutOfRoom:
            return None
        lent: list[Lent] = []
        try:
            unmasked = sampling.without_masks()
            wanted = len(leaves), width, longest + MOST + width, way, unmasked
            bucket, shaping = self._serving(*wanted)
            if graphs.states is not None:
                lent = graphs.states.lend(leaves, bucket.size.tokens + 1)
                bucket, shaping = self._serving(*wanted)  # which is another one, if they had no room
            if bucket.drafter is not None:
                for leaf in leaves:
                    bucket.drafter.catch_up(leaf)
            own = [taken[i : i + each] for i in range(0, len(taken), each)]
            bucket.set_out(leaves, wants, own, graphs.block_table.lines(leaves), lent)
            bucket.sampling(unmasked, leaves, shaping)
            sure = self.gate.sure(leaves, chosen) and not sampling.shaping.masks
            bucket.run(min(ROUNDS if sure else TRIAL, self.gate.enough(leaves, wants, chosen), turns))
            runs = bucket.told(len(leaves))
        except BaseException:
            model.slots.drop(taken)
            if graphs.states is not None:
                graphs.states.take_back(lent)
            raise
        replies = [self._settled(*each) for each in zip(leaves, runs, own, sampling.plans, writes, strict=True)]
        if graphs.states is not None:
            for leaf, run, row in zip(leaves, runs, lent, strict=True):
                self._settle_state(graphs.states, leaf, run, row)
        if bucket.drafter is not None:
            for leaf in leaves:
                bucket.drafter.wrote(leaf)
        return self._stepped(leaves, writes, sampling, steps, replies, runs)

    def _settle_state(self, states: GraphStates, leaf: CachedSequence, run: SpeculatedRun, lent: Lent) -> None:
        """Keep the state behind a text's last slot, if it was the last that was computed."""
        if leaf.slots[-1:] == run.slots[-1:] and run.state in lent.own:
            states.settle(lent, leaf.slots[-1], run.state)
        else:
            states.take_back([lent])

    def _stepped(
        self,
        leaves: list[CachedSequence],
        writes: Sequence[Write],
        sampling: Sampling,
        steps: Steps,
        replies: list[Written | UnspoolError | None],
        runs: list[SpeculatedRun],
    ) -> Replies:
        """What rounds have brought, and a plain step for those which a mask has cut: it needs the mask there."""
        left: dict[int, Write] = {}
        for i, (reply, run, write) in enumerate(zip(replies, runs, writes, strict=True)):
            if reply is None:
                left[i] = write
            elif sampling.plans[i].mask is not None and isinstance(reply, Written) and self._cut(leaves[i], reply, run):
                prefix = write.prefix.then(reply.tokens)
                mask, state = mask_of(prefix)
                if not mask.over(state):
                    left[i] = replace(write, prefix=prefix, most=write.most - len(reply.tokens))
        stepped = steps([leaves[i] for i in left], list(left.values()), sampling.rows(list(left)), 1) if left else None
        for i, step in zip(left, stepped or (), strict=True):
            reply = replies[i]
            if reply is None:
                wasted = len(runs[i].rounds)
                replies[i] = step._replace(forwards=wasted + step.forwards) if isinstance(step, Written) else step
            elif isinstance(reply, Written) and isinstance(step, Written):
                replies[i] = reply._replace(
                    tokens=reply.tokens + step.tokens,
                    rows=reply.rows + step.rows,
                    rounds=(*reply.rounds, DeviceRound(0, len(step.tokens))),
                    forwards=reply.forwards + step.forwards,
                )
        return [reply for reply in replies if reply is not None]

    def _cut(self, leaf: CachedSequence, reply: Written, run: SpeculatedRun) -> bool:
        """Whether less of a run stands than was wanted, and there is room for a token more."""
        return len(reply.tokens) < len(run.tokens) and len(leaf.tokens) < self._graphs.network.context

    def draft_with(self, network: DrafterNetwork) -> str | None:
        """Have this drafter in the graphs that are captured from now on; why not, where it cannot be."""
        graphs = self._graphs
        lacking = undraftable(network, graphs.network)
        self.drafter = GraphDrafter(network, graphs.network, graphs.block_table) if lacking is None else None
        return lacking

    def _made(self, size: Size, network: Fused, block_table: BlockTable) -> SpeculativeStep:
        return SpeculativeStep(size, network, block_table, self.memory, self.drafter)

    def _serving(
        self, rows: int, width: int, length: int, way: Way, sampling: Sampling
    ) -> tuple[SpeculativeStep, Shaping]:
        depth = self.depth if way is Way.CHAIN else 0
        drawn = depth > 0 and any(sampling.temperatures)
        wanted = Kind.SPECULATE, rows, width, length, sampling.shaping
        bucket, has = self._graphs.serving(*wanted, depth=depth, drawn=drawn)
        assert isinstance(bucket, SpeculativeStep)
        return bucket, has

    def _settled(
        self, leaf: CachedSequence, run: SpeculatedRun, own: list[int], plan: WarpPlan, write: Write
    ) -> Written | UnspoolError | None:
        """The tokens that were written of a text; None if its mask forbids the first of them."""
        slots, forwards = self._model.slots, len(run.rounds)
        count = usable(run.tokens, len(run.tokens))
        if plan.mask is not None:
            count = count_following(write.prefix, run.tokens[:count])
        if count == 0:
            slots.drop(own)
            return refused(run.tokens[0], plan) if plan.mask is None else None
        run = run.until(count)
        kept = set(run.slots)
        slots.drop([slot for slot in own if slot not in kept])
        leaf.tokens += run.tokens
        leaf.slots += run.slots
        leaf.law, leaf.hidden = None, {}
        self._graphs.block_table.kept(leaf, len(leaf.slots))
        self.memory.lines.wrote(leaf)
        return Written(tuple(run.tokens), rows=run.computed, rounds=tuple(run.rounds), forwards=forwards)


def widest(rows: int) -> int:
    """Tokens of each of so many rows at most."""
    return min(WIDE, max(NARROW, BATCH // step_up(rows, 1)))


def widths(most: int) -> tuple[int, ...]:
    """Tokens of a row that are worth trying, up to so many: on a small model every token costs, on a large one none."""
    return tuple(dict.fromkeys((max(min(NARROW, most), most // 4), most)))
