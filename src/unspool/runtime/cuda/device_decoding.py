"""What a device decides by itself: verdicts on drafted trees, and plain decoding for many tokens at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...core.asks import Check, Checked, Verdict, Write, Written
from ...core.chance import At, Philox, Role
from ...core.errors import OutOfRoom, UnspoolError
from ...core.law import Law
from ...core.reported_law import Reports
from ...core.tree import ROOT, Tree
from ...core.verifier import Kernel, kernel_of
from ...core.warp.warp import Scored
from ...core.warp.warp_plan import WarpPlan, count_following
from ..cache.cached_model import CachedModel
from ..cache.forward_request import ForwardRequest, scores_of
from ..cache.sequence import CachedSequence, CachedSession
from ..drafter.drafter_network import DrafterNetwork
from ..engine.contracts import ScoreRequest, guesses_of, named
from ..network.head_guesses import foresight
from .checked_turns import LEAST, CheckedRow, CheckedTurns
from .cuda_graph_executor import CudaGraphExecutor, DeviceCheck, refused, usable
from .deferred_capture import ladder
from .device_rejection import refusable
from .device_speculation import DeviceSpeculation
from .ending_turns import run_until_ended
from .footprint import FEW
from .graph_bucket import STRIDE
from .graph_states import Lent
from .packing import Kind
from .sampling import Sampling, StepMasks, device_plan

MASKED = 8  # tokens that are written at most in one go where some have masks: those who end are not gone before


class DeviceDecoding:
    """Checks trees and writes on where the model runs; both answer None where only the host can.

    `write` takes these steps: read what is owed of every prompt; let `speculation` go first, if the model drafts for
    itself and that pays; else take slots for the next tokens of all texts, replay the one-token graph that often, or
    until all texts have ended, and copy the tokens back once.
    """

    def __init__(
        self, model: CachedModel, graphs: CudaGraphExecutor, speculation: DeviceSpeculation | None = None
    ) -> None:
        self._model, self._graphs, self.speculation = model, graphs, speculation
        self.max_sequences = graphs.block_table.trash

    @property
    def speculates(self) -> bool:
        """Whether it drafts for itself when a `Write` lets it."""
        return self.speculation is not None

    def defer_capture(self, texts: int) -> None:
        """Have graphs captured by `capture_next`, the first for up to so many texts; until then wider ones serve."""
        drafted = () if self.speculation is None else self.speculation.ladder(texts)
        self._graphs.defer_capture((*ladder(texts, self._graphs.block_table.length), *drafted))

    def capture_next(self) -> int:
        """Capture a graph that somebody could use; how many are left."""
        return self._graphs.capture_next()

    def draft_with(self, network: DrafterNetwork) -> str | None:
        """Have a trained drafter draft where the model runs; why not, where it cannot."""
        self._graphs.buckets.clear()  # what was captured notes other states
        if self.speculation is None:
            return "its model does not draft for itself here"
        return self.speculation.draft_with(network)

    @property
    def drafts(self) -> bool:
        """Whether a trained drafter is part of that."""
        return self.speculation is not None and self.speculation.drafter is not None

    def can_write(self, write: Write) -> bool:
        """Whether kernels can sample these tokens: their warps have a plan, and their noise is Philox's."""
        return isinstance(write.chance, Philox) and device_plan(write.prefix) is not None

    def check(self, asked: Sequence[ScoreRequest], checks: Sequence[Check]) -> list[Checked | UnspoolError] | None:
        """What greedy verification, sample matching or rejection say of these trees, in one forward."""
        decidable = [found for check in checks if (found := _decidable(check)) is not None]
        if len(decidable) < len(checks) or len({each.rejects for each in decidable}) > 1:
            return None
        model = self._model
        groups = model.requests(asked)
        requests = [group[0] for group in groups if len(group) == 1]
        if len(requests) < len(groups) or not all(_simple(request) for request in requests):
            return None
        model.refuse_overlong(requests)
        heads = model.heads if any(guesses_of(ask.want) for ask in asked) else None
        wants = named(frozenset(ask.want for ask in asked))
        verdicts = model.holding(requests, lambda: self._graphs.verify(requests, wants, decidable, heads))
        model.note(requests)
        return [self._checked(*each) for each in zip(asked, decidable, requests, verdicts, strict=True)]

    def _checked(
        self, ask: ScoreRequest, decided: DeviceCheck, request: ForwardRequest, found: list[int]
    ) -> Checked | UnspoolError:
        scores, check, (index, token) = scores_of(ask, [request]), decided.check, found
        node = _accepted(check.tree, request, index)
        if token < 0 and node in check.last:
            token = check.tree.drawn[node].token  # whichever: the text has ended
        if token < 0 and not decided.unasked:
            return refused(token, decided.plan)
        verdict, scored = Verdict(node, token), check.scored(scores)
        if decided.unasked:
            try:
                verdict = _allowed(check, scored, verdict)
            except UnspoolError as error:
                return error
        count = guesses_of(ask.want)
        heads = self._model.heads if count else None  # which are read from their file when first wanted
        if heads is not None:
            scores = replace(scores, ahead=foresight(heads, request, *verdict, count))
        return Checked(verdict, scored, scores)

    def write(
        self, asked: Sequence[ScoreRequest], writes: Sequence[Write], turns: int, logprobs: int | None = None
    ) -> list[Written | UnspoolError] | None:
        """Write on without leaving the device, every text as far as it wants; prompts are read before.

        With `logprobs`, of every token's laws the probabilities of the token and of so many best are reported.
        """
        leaves = [leaf for ask in asked if isinstance(ask.session, CachedSession) for leaf in ask.session.leaves]
        sampling = Sampling.of([write.prefix for write in writes], [write.chance for write in writes], logprobs)
        if sampling is None or len(leaves) != len(writes) or any(leaf.drafts for leaf in leaves):
            return None
        if self.speculation is not None and logprobs is None and self.speculation.takes(leaves, writes, sampling):
            return self.speculation.write(leaves, writes, sampling, turns, self._steps)
        return self._steps(leaves, writes, sampling, turns)

    def _steps(
        self, leaves: list[CachedSequence], writes: Sequence[Write], sampling: Sampling, turns: int
    ) -> list[Written | UnspoolError] | None:
        """One token a step, at most `turns` of them."""
        model, graphs = self._model, self._graphs
        longest = max(len(leaf.tokens) for leaf in leaves)
        wants = [write.most for write in writes]
        turns = min(turns, STRIDE, max(wants), graphs.network.context - longest)
        checked = self._asked_behind(writes, sampling) if turns >= LEAST else {}
        if sampling.shaping.masks and not checked:
            turns = min(turns, MASKED)
        if turns < 1 or (len(leaves) <= FEW and any(len(leaf.owed) > 1 for leaf in leaves)):
            return None
        read = model.read_ahead(leaves)
        turns, plan = self._planned([turns if i in checked else want for i, want in enumerate(wants)], turns)
        states, lent = graphs.states, list[Lent]()
        try:
            if states is not None:
                lent = states.lend(leaves, 1)
            shaping = sampling.shaping._replace(ranks=bool(checked))
            bucket, shaping = graphs.serving(Kind.WRITE, len(leaves), 1, longest + turns, shaping)
            past = [len(leaf.slots) for leaf in leaves]
            lines, marks = graphs.block_table.lines(leaves), [(row.start, *row.own) for row in lent]
            bucket.begin([leaf.tokens[-1] for leaf in leaves], past, plan, turns, lines, marks)
            bucket.sampling(sampling, leaves, shaping)
            if checked and turns >= LEAST:
                free = graphs.beside(bucket, sampling.without_masks().shaping._replace(ranks=True))
                others = [want for i, want in enumerate(wants) if i not in checked]
                ran = CheckedTurns(bucket, free, shaping, checked).run(turns, others)
            else:
                checked, ran = {}, turns
                ends = [write.ends for write in writes]
                if sampling.shaping.masks or states is not None or not any(ends):  # a state does not go back
                    masked = {i: writes[i].prefix for i, own in enumerate(sampling.plans) if own.mask is not None}
                    bucket.run(turns, masks=StepMasks(masked))
                else:
                    ran = run_until_ended(bucket, turns, wants, ends)
            written: list[list[int]] = bucket.written[: len(leaves), :ran].tolist()
            told = sampling.logprobs is not None
            reports = bucket.notes.reported(shaping.reports, len(leaves), turns) if told else None
        except BaseException:
            model.slots.drop([slot for slot in plan if slot != graphs.network.slots.trash])
            if states is not None:
                states.take_back(lent)
            raise
        replies: list[Written | UnspoolError] = []
        for number, (leaf, want, tokens) in enumerate(zip(leaves, wants, written, strict=True)):
            own = plan[number * turns : (number + 1) * turns]
            row = checked.get(number)
            taken = own[: usable(tokens, min(want, ran))] if row is None else [own[turn] for turn in row.turns]
            count = len(taken)
            if states is not None and count == min(want, turns):
                states.settle(lent[number], taken[-1], *lent[number].own)
            elif states is not None:  # its state has gone on to where the text does not
                states.take_back([lent[number]])
            if count < turns:
                kept = {*taken, graphs.network.slots.trash}
                model.slots.drop([slot for slot in own if slot not in kept])
                if count == 0:
                    replies.append(refused(tokens[0] if row is None else row.fault, sampling.plans[number]))
                    continue
            tokens = tokens[:count] if row is None else row.tokens
            leaf.tokens += tokens
            leaf.slots += taken
            leaf.law = None
            if leaf.hidden:
                leaf.hidden = {}
            graphs.block_table.kept(leaf, len(leaf.slots))
            if sampling.plans[number].remembers:
                graphs.block_table.texts.wrote(leaf, 0 if row is None else 1)
            before: Sequence[Law] = ()
            after: Sequence[Law] = ()
            if reports is not None:
                logprobs, best = reports[0][number], reports[1][number]
                before, after = Reports(tokens, logprobs[:, 1:], best), Reports(tokens, logprobs[:, :1], best[:, :0])
            computed = count if row is None else ran
            replies.append(
                Written(tuple(tokens), before, after, rows=computed + read.get(number, 0), forwards=computed)
            )
        return replies

    def _asked_behind(self, writes: Sequence[Write], sampling: Sampling) -> dict[int, CheckedRow]:
        """The rows with masks, if these may be asked behind the steps: all of them greedy, and none at its end."""
        plans = sampling.plans
        if self._graphs.states is not None:  # a state does not go back
            return {}
        masked = [i for i, plan in enumerate(plans) if plan.mask is not None]
        if sampling.logprobs is not None or any(plans[i].temperature > 0 for i in masked):
            return {}
        rows = {i: CheckedRow.of(writes[i].prefix, writes[i].most, plans[i].unmasked.edits) for i in masked}
        return rows if all(row.live for row in rows.values()) else {}

    def _planned(self, wants: list[int], turns: int) -> tuple[int, list[int]]:
        """How many turns there is room for, and the slots of all rows, turn by turn; what nobody wants is trash."""
        trash = self._graphs.network.slots.trash
        while True:
            short = [want < turns for want in wants]
            count = sum(min(want, turns) for want in wants) if any(short) else turns * len(wants)
            try:
                taken = self._model.take(count)
            except OutOfRoom:
                if turns == 1:
                    raise
                turns //= 2
                continue
            if not any(short):
                return turns, taken
            plan: list[int] = []
            for want in wants:
                own = min(want, turns)
                plan += taken[len(taken) - own :]
                del taken[len(taken) - own :]
                plan += [trash] * (turns - own)
            return turns, plan


def _decidable(check: Check) -> DeviceCheck | None:
    """The check as kernels decide it; None if they cannot."""
    plan = device_plan(check.prefix)
    if plan is None:
        return None
    kernel = kernel_of(check.verify)
    if kernel is Kernel.GREEDY and plan.typical < 1:  # which may drop the best
        return None
    if kernel is Kernel.GREEDY or (kernel is Kernel.REJECTION and plan.temperature == 0):
        plan = replace(plan, temperature=0.0)  # a drafted token stands if it is the best
    else:
        refuses = kernel is Kernel.REJECTION and plan.bare and refusable(check, plan.temperature)
        if not (kernel is Kernel.SAMPLE_MATCH or refuses) or not isinstance(check.chance, Philox):
            return None
    if plan.mask is None or not len(check.tree):
        return DeviceCheck(check, plan)
    return None if _draws_masked(plan) else DeviceCheck(check, plan.unmasked, unasked=True)


def _draws_masked(plan: WarpPlan) -> bool:
    """Whether its tokens can only be drawn with the mask at hand; greedy ones can be held against the mask later."""
    return plan.mask is not None and plan.temperature > 0


def _allowed(check: Check, scored: Scored, verdict: Verdict) -> Verdict:
    """The part of a greedy verdict, found without the mask, that the mask allows."""
    path = check.tree.path(verdict.node)
    count = count_following(check.prefix, [*check.tree.tokens(path), *[verdict.token] * (verdict.token >= 0)])
    if count > len(path):
        return verdict
    node = path[count - 1] if count else ROOT
    return Verdict(node, check.chance.choose(scored.law(node), At(len(check.prefix) + count, Role.PICK)))


def _simple(request: ForwardRequest) -> bool:
    """True if kernels can follow its tree: the text's last token and all nodes below are computed together."""
    return bool(request.owed) and not request.leaf.drafts and not request.best


def _accepted(tree: Tree, request: ForwardRequest, index: int) -> int:
    """The node of a tree that was computed as this token of its request."""
    path: list[int] = []
    at = index - len(request.owed)
    while at >= 0:
        token_at, above = request.added[at]
        path.append(token_at)
        assert isinstance(above, int)
        at = above
    return tree.end(reversed(path))
