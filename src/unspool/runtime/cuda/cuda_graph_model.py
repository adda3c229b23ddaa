"""The causal contract on a GPU: the same bookkeeping, run in buckets, verified and written on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...core.asks import Check, Checked, Verdict, Write, Written
from ...core.chance import Philox
from ...core.errors import BadScores, OutOfRoom
from ...core.tree import Tree
from ...core.verifier import Kernel, kernel_of
from ...core.warp.temperature import warmth
from ...core.warp.warp import Scored
from ..cache.cached_model import Slotted, SlottedSession, scores_of
from ..cache.forward_request import Growth, harvest
from ..cache.logits_row import Line
from ..cache.sequence import Leaf
from ..engine.contracts import LAST, Asked, Session, guesses_of, named
from ..network.head_guesses import foresee, foresight
from .block_table import Lanes
from .device_rejection import refusable, rejected
from .footprint import FLOCK, LANES, PORTION, SHORTEST, WIDEST, lanes_for, step_up
from .fused import Fused
from .graph_bucket import STRIDE, Bucket, Kind, Lines, Size
from .packing import Packed, packed

FEW = 4  # rows up to which short prompts go with the step that gives logits for all tokens
BROKEN = -1  # the token of scores that no token can be picked from


class Graphed(Slotted):
    """A causal model on a device: rows in rectangular buckets, each a graph that is made when first needed.

    `check` and `write` answer on the device what the rules would say of the scores; None where they cannot.
    """

    buckets = Bucket
    leaps = draws = False
    portion = PORTION

    def __init__(self, network: Fused, shelf: int = 0, lanes: int = LANES) -> None:
        super().__init__(network, shelf)
        self.fused = network
        longest = step_up(network.context, SHORTEST)
        self.lanes = Lanes(lanes_for(network.slots.room, lanes), longest, network.device)
        self.crowd = self.lanes.trash
        self._buckets: dict[Size, Bucket] = {}

    def check(self, asked: Sequence[Asked], checks: Sequence[Check]) -> list[Checked | BadScores] | None:
        """What greedy verification, the walk or rejection say of these trees, told by the device in one small copy."""
        heats = [heat for check in checks if (heat := _heat(check)) is not None]
        refusing = {_refuses(*each) for each in zip(checks, heats, strict=False)}
        if len(heats) < len(checks) or len(refusing) > 1:
            return None
        groups = self._grown(asked)
        growths = [group[0] for group in groups if len(group) == 1]
        if len(growths) < len(groups) or not all(_simple(growth) for growth in growths):
            return None
        self._refuse_overlong(growths)
        wants, heated = named(asked), list(zip(checks, heats, strict=True))
        guess = any(guesses_of(ask.want) for ask in asked) and self.heads is not None
        verdicts = self._holding(growths, lambda: self._run(growths, wants, heated, guess))
        self._note(growths)
        return [self._checked(*each) for each in zip(asked, checks, growths, verdicts, strict=True)]

    def write(self, asked: Sequence[Asked], writes: Sequence[Write], turns: int) -> list[Written | BadScores] | None:
        """Write on without leaving the device, every text as far as it wants; prompts are read before."""
        heats = [heat for write in writes if (heat := warmth(write.prefix.warp)) is not None]
        sessions = [ask.session for ask in asked]
        leaves = [s.leaves[0] for s in sessions if isinstance(s, SlottedSession) and len(s.leaves) == 1]
        chances = [write.chance for write in writes if isinstance(write.chance, Philox)]
        if min(len(heats), len(leaves), len(chances)) < len(writes) or any(leaf.drafts for leaf in leaves):
            return None
        longest = max(len(leaf.tokens) for leaf in leaves)
        wants = [write.most for write in writes]
        turns = min(turns, STRIDE, max(wants), self.fused.context - longest)
        if turns < 1 or (len(leaves) <= FEW and any(len(leaf.owed) > 1 for leaf in leaves)):
            return None
        read = self._read_ahead(leaves)
        turns, plan = self._planned(wants, turns)
        try:
            bucket = self.bucket(Kind.WRITE, len(leaves), 1, longest + turns)
            past = [len(leaf.slots) for leaf in leaves]
            bucket.begin([leaf.tokens[-1] for leaf in leaves], past, plan, turns, self.lanes.lines(leaves))
            bucket.warm(heats, chances)
            bucket.run(turns)
            written: list[list[int]] = bucket.written[: len(leaves), :turns].tolist()
        except BaseException:
            self.slots.drop([slot for slot in plan if slot != self.fused.slots.trash])
            raise
        replies: list[Written | BadScores] = []
        for number, (leaf, want, tokens) in enumerate(zip(leaves, wants, written, strict=True)):
            count = turns
            if want < turns:
                count = want
                del tokens[want:]
            taken = plan[number * turns : number * turns + count]
            if BROKEN in tokens:
                self.slots.drop(taken)
                replies.append(broken())
                continue
            leaf.tokens += tokens
            leaf.slots += taken
            leaf.law = None
            if leaf.hidden:
                leaf.hidden = {}
            self.lanes.kept(leaf, len(leaf.slots))
            replies.append(Written(tuple(tokens), rows=count + read.get(number, 0)))
        return replies

    def _planned(self, wants: list[int], turns: int) -> tuple[int, list[int]]:
        """How many turns there is room for, and the slots of all rows, turn by turn; what nobody wants is trash."""
        trash = self.fused.slots.trash
        while True:
            short = [want < turns for want in wants]
            count = sum(min(want, turns) for want in wants) if any(short) else turns * len(wants)
            try:
                taken = self._taken(count, None)
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

    def _read_ahead(self, leaves: list[Leaf]) -> dict[int, int]:
        """Read all but the last token of every text; how many tokens that were, by the number of the text."""
        growths: dict[int, Growth] = {}
        for number, leaf in enumerate(leaves):
            owed = len(leaf.tokens) - len(leaf.slots)
            if owed == 0:  # the last one is computed anew, to go on from it
                self.slots.drop([leaf.slots.pop()])
            elif owed > 1:
                growths[number] = Growth(leaf, leaf.owed[:-1])
        if not growths:
            return {}
        self._read_on(list(growths.values()))
        return {number: len(growth) for number, growth in growths.items()}

    def read(self, portions: Sequence[tuple[Session, int]]) -> None:
        """Read so many of the owed tokens now, from the first on, and answer nothing."""
        sessions = [(s, count) for s, count in portions if isinstance(s, SlottedSession)]
        self._read_on([Growth(s.leaves[0], s.leaves[0].owed[:count]) for s, count in sessions])

    def _read_on(self, growths: list[Growth]) -> None:
        self._holding(growths, lambda: self._read_prompts(growths, 0))
        for growth in growths:
            growth.leaf.slots += growth.slots
            self._beginnings.note(growth.leaf)

    def closed(self, session: SlottedSession) -> None:
        """Forget a session; a text on the shelf needs no lane."""
        for leaf in session.leaves:
            self.lanes.left(leaf)
        super().closed(session)

    def _checked(self, ask: Asked, check: Check, growth: Growth, verdict: list[int]) -> Checked | BadScores:
        scores, (index, token) = scores_of(ask, [growth]), verdict
        if token == BROKEN:
            return broken()
        node = _accepted(check.tree, growth, index)
        count = guesses_of(ask.want)
        if count and self.heads is not None:
            scores = replace(scores, ahead=foresight(self.heads, growth, node, token, count))
        scored = Scored(check.tree, check.prefix, scores.leaf[0], scores.after)
        return Checked(Verdict(node, token), scored, scores)

    # ---- the forward

    def _forward(self, growths: list[Growth], wants: tuple[int, ...]) -> None:
        self._run(growths, wants, [])

    def _run(
        self, growths: list[Growth], wants: tuple[int, ...], checks: list[tuple[Check, float]], guess: bool = False
    ) -> list[list[int]]:
        """Run all growths and harvest; with checks, the index of each last accepted token and the token after it.

        If heads are to `guess`, they do where the accepted path ends; what they read is kept for other places.
        """
        read = self._read_prompts(growths, WIDEST if len(growths) <= FEW else 1)
        rows = [packed(growth, done) for growth, done in zip(growths, read, strict=True)]
        longest = max(row.past + len(row.tokens) for row in rows)
        bits = max(row.past - row.clear + len(row.tokens) for row in rows)
        tokens = max(len(row.tokens) for row in rows)
        if any(row.past > row.clear for row in rows):  # drafts of earlier forwards take bits
            tokens = max(tokens, 2, -(-bits // 2))
        bucket = self.bucket(Kind.TREE, len(rows), tokens, longest)
        bucket.fill(rows, self._lines(growths, rows))
        if checks:
            bucket.warm([heat for _, heat in checks], [check.chance for check, _ in checks])
        want = tuple(sorted({*wants, LAST})) if guess else wants
        if LAST in want:
            bucket.heads = self.heads
        bucket.run(want=want)
        logits, best = bucket.logits.clone(), bucket.best.clone()  # the graph writes its own again
        hidden = {layer: bucket.hidden[layer].clone() for layer in wants}
        states = bucket.hidden[LAST].clone() if guess else None
        for number, (growth, row) in enumerate(zip(growths, rows, strict=True)):
            first = number * bucket.size.tokens + max(row.root, 0)
            growth.logits, growth.ready = (own[first : first + 1 + len(growth.added)] for own in (logits, best))
            growth.states = None if states is None else states[first : first + 1 + len(growth.added)]
            harvest(growth, lambda at: Line(logits, at), hidden, first)
            self.lanes.kept(growth.leaf, row.clear)
        verdicts: list[list[int]] = []
        if checks and _refuses(*checks[0]):
            verdicts = rejected(bucket, rows, [check for check, _ in checks], BROKEN)
        elif checks:
            verdicts = bucket.verdicts[: len(rows), :2].tolist()
            if guess:
                foresee(growths, bucket.ahead)
        return [[index + done, token] for (index, token), done in zip(verdicts, read, strict=False)]

    def _read_prompts(self, growths: list[Growth], width: int) -> list[int]:
        """Read what is owed, portion by portion, until at most `width` tokens are left; how many of each were read.

        Unless everything is read, the last token of a text is not.
        """
        done, last = [0] * len(growths), min(width, 1)
        while True:
            left = [i for i, g in enumerate(growths) if len(g) - done[i] > width and len(g.owed) - done[i] > last]
            if not left:
                return done
            most = max(min(PORTION, len(growths[i].owed) - last - done[i]) for i in left)
            left = left[: max(1, FLOCK // step_up(most, WIDEST))]
            parts = [_part(growths[i], done[i], min(PORTION, len(growths[i].owed) - last - done[i])) for i in left]
            longest = max(row.past + len(row.tokens) for row in parts)
            bucket = self.bucket(Kind.FILL, len(parts), max(len(row.tokens) for row in parts), longest)
            bucket.fill(parts, self._lines([growths[i] for i in left], parts))
            bucket.run()
            for i, row in zip(left, parts, strict=True):
                done[i] += len(row.tokens)

    def _lines(self, growths: list[Growth], rows: list[Packed]) -> Lines:
        return self.lanes.lines([growth.leaf for growth in growths], [row.behind for row in rows])

    def bucket(self, kind: Kind, rows: int, tokens: int, length: int) -> Bucket:
        """The bucket that so many rows fit into."""
        wide = step_up(tokens, WIDEST if kind is Kind.FILL and tokens > 1 else 1)
        size = Size(kind, step_up(rows, 1), wide, min(step_up(length, SHORTEST), self.lanes.length))
        if size not in self._buckets:
            self._buckets[size] = self._made(size)
        return self._buckets[size]

    def _made(self, size: Size) -> Bucket:
        return self.buckets(size, self.fused, self.lanes)


def _part(growth: Growth, done: int, count: int) -> Packed:
    """A portion of a prompt; without logits nobody asks what hangs where."""
    clear, end = len(growth.leaf.slots) + done, done + count
    behind = [*growth.slots[:done], *(node.slot for node in growth.leaf.drafts)]
    places, past = list(range(clear, clear + count)), len(growth.leaf.slots) + len(behind)
    return Packed(growth.owed[done:end], places, growth.slots[done:end], [], clear, behind, [], past, -1, None)


def _simple(growth: Growth) -> bool:
    """True if the device can walk it: the text's last token and one tree below, computed together."""
    return bool(growth.owed) and not growth.leaf.drafts and not growth.best


def _heat(check: Check) -> float | None:
    """The temperature that a check comes down to, None if it does not."""
    heat = warmth(check.prefix.warp)
    if heat is None:
        return None
    kernel = kernel_of(check.verify)
    if kernel is Kernel.GREEDY or (kernel is Kernel.REJECTION and heat == 0):
        return 0.0  # where the law is a point, a drafted token stands if it is that one
    known = kernel is Kernel.SAMPLE_MATCH or (kernel is Kernel.REJECTION and refusable(check, heat))
    return heat if known and isinstance(check.chance, Philox) else None


def _refuses(check: Check, heat: float) -> bool:
    """True if drafts fall by coins."""
    return kernel_of(check.verify) is Kernel.REJECTION and heat > 0


def broken() -> BadScores:
    """What to tell a request whose scores no token can be picked from."""
    return BadScores(
        "the model returned NaN or infinite scores on the device. Its weights or its precision are broken: "
        "try dtype fp32 or bf16, and check the file with `unspool pull --check`."
    )


def _accepted(tree: Tree, growth: Growth, index: int) -> int:
    """The node of a tree that was computed as this token of its growth."""
    path: list[int] = []
    at = index - len(growth.owed)
    while at >= 0:
        token_at, above = growth.added[at]
        path.append(token_at)
        assert isinstance(above, int)
        at = above
    return tree.end(reversed(path))
