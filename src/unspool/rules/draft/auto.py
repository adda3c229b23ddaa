"""Auto: every source there is, and as much of each as pays on this machine, which may be nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from ...core.asks import Price, Score, Scores, Tops
from ...core.canvas import Binding
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.cost import FREE, Cost
from ...core.law import Drawn, chosen
from ...core.tree import NOTHING, Tree
from ...core.warp.warp import Prefix
from ...core.warp.warp_plan import plan_of
from ...loops.drafter import Draft, Memory, Proposing, Source, begun, possible
from ...loops.guard import parts
from ...loops.speculate import Speculate
from .. import draft
from ..grow.best_first import planted
from .bigram_recycling import BigramRecycling
from .chain import DRAFT
from .composite import CompositeSource
from .guide import Planted
from .heads import HeadsSource
from .merge import Merged, Rate
from .prefilled import WIDTH
from .suffix import Suffix

TARGET_PRICE, DRAFT_PRICE = Price(), Price(DRAFT)
WIDE = 64
GUESSED = 4  # tokens of each head that are looked at: the others are never worth a row on a CPU
TOLD = 512  # tokens of a prompt, the last, that tell their laws at most
LITTLE = 0.02  # of the time: what looking may take before anybody counts it
HOST = 2e-4  # seconds that a round takes on the host, before it was measured
SHORT, LONG = 16, 128  # tokens to rest
VAIN = 0.5  # of a token's time: what looks that bring nothing may take before the source rests
PROBE, RARELY = 16, 256  # rounds after which a draft model that did not seem to pay is asked again, at most
LOSS = 1.05  # how much longer a token may take with the draft model than without before it counts as lost


@claims(SEED, trials=lambda _: [Speculate(Auto(), budget=2)], systems=("auto", "ReSpec (switching by measured cost)"))
@dataclass(frozen=True)
class Auto(Draft):
    """The tree with the most expected tokens per time: (1 + Σ p̂(path)) / t(1 + nodes), by this machine's own t.

    Copies and remembered laws are always at hand, under a constraint also what it forces; what they propose is marked
    on the text whether it was drafted or not; so a round in which nothing pays is a plain one, and finding that out
    costs no forward. Heads that guess for a small part of a forward, as beside packed weights, are a source like these.
    If there is a draft model, it is asked for one token more as long as that token is expected to bring more than its
    draft forward and its row take at the rate so far. Rounds with it and without are timed, seconds per token; where it
    loses it is left out for 16 rounds, twice as many each time. It is not asked at all if reading the text so far would
    take it longer than half of what may still be written takes plainly. t is measured once per model and device, for as
    many requests as share a forward.

    On a fast device the host's own time counts too: h, what drafting and learning have taken lately, times the requests
    that wait for each other. Where (1 + Σ p̂) / (t(1 + nodes) + h) of late is below plain decoding's 1 / t(1), it rests
    for a few tokens, twice as many each time up to 128, or as many as make looking a fiftieth of the time, and then
    looks again. Where h alone is more than t(1), as in a full batch on a GPU, it rests without a look, and only asks
    now and then whether the batch has shrunk. A model on a GPU that drafts for itself is left to do so, and decides by
    its own clock whether that pays (`on_device`).

    Texts that are written together, as the rollouts of one prompt are, may share what the target said (`auto@batch`).
    The fewer of them are left, the less a drafted row costs, and the more is known: that is when ReSpec speculates.

    Claim: SEED under sample matching. Cost: that of what pays; on the host, a copy, a top-k and a heap per round.
    """

    recalled: Draft = BigramRecycling(8)  # noqa: RUF009  (frozen)

    @property
    def warm(self) -> int:
        return self.recalled.warm

    def memory(self, most: int) -> Memory | None:
        return self.recalled.memory(most)

    def sharing(self, memory: Any) -> Draft:
        return replace(self, recalled=self.recalled.sharing(memory))

    def begin(self, prefix: Prefix) -> Source:
        bound = any(isinstance(part, Binding) for part in parts(prefix.warp))
        sources: tuple[Draft, ...] = (draft.Forced(),) if bound else ()
        return Paying(Merged([begun(each, prefix) for each in (*sources, Suffix(), self.recalled)], FREE))


class Pace:
    """Seconds per token of the rounds of one kind; old rounds fade."""

    __slots__ = ("rounds", "seconds", "tokens")

    def __init__(self) -> None:
        self.rounds, self.seconds, self.tokens = 0, 0.0, 0.0

    def mark(self, seconds: float, tokens: float) -> None:
        """Take note of one round."""
        self.rounds += 1
        self.seconds, self.tokens = 0.8 * self.seconds + seconds, 0.8 * self.tokens + tokens

    @property
    def each(self) -> float:
        """Seconds of a token."""
        return self.seconds / self.tokens


class Paying(CompositeSource):
    """The sources of one request, how often the draft model was right on this text, and what drafting takes."""

    def __init__(self, free: Merged) -> None:
        super().__init__((free,))
        self.free, self.stood = free, Rate(0.7, weight=8.0)
        self.rounds, self.chain = 0, NOTHING
        self.looked = self.untold = False  # whether it has looked in this round, and waits for the prompt's laws
        self.spent, self.host = 0.0, HOST  # seconds of this round so far, and lately per round
        self.pause, self.until = 0, 0
        self.rested, self.vain = 0, 0.0  # tokens of the last rest; looks since then, in tokens' time
        self.promised = Pace()  # what rounds were expected to take and to bring since the last rest
        self.alone, self.helped = Pace(), Pace()  # rounds without the draft model, and with it
        self.began, self.step, self.read = 0.0, 0.0, False  # of this round; of a drafted token; whether it has read
        self.doubt, self.idle = 0, 0  # rounds that it is left out for, and until which one
        self.heads: HeadsSource | None = None  # where the model has heads that take little time
        self.on_device = 0  # tokens that the model may draft for itself
        self.lonely = False  # whether it has asked for a draft model, and there is none

    @property
    def want(self) -> tuple[str, ...]:
        return (*((f"prompt:{WIDTH}",) if self.untold else ()), *super().want)

    @property
    def ahead(self) -> int:
        return self.on_device

    def rest(self, prefix: Prefix) -> int:
        return max(0, self.until - len(prefix))

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        cost: Cost = yield TARGET_PRICE
        other: Cost | None = None if cost.drafts or self.lonely else (yield DRAFT_PRICE)
        self.lonely = other is None and not cost.drafts
        if cost.speculates and other is None and plan_of(prefix.warp) is not None:
            self.on_device, self.until = budget, len(prefix) + LONG
            return NOTHING
        ahead, alone = self.host * cost.requests, cost(1)
        if ahead > alone:  # so many wait for each other that not even looking pays
            self.until = len(prefix) + LONG
            return NOTHING
        if cost.guesses and self.heads is None:
            self.heads = HeadsSource(GUESSED, len(prefix))
            self.free.join(self.heads)
        self.began = began = perf_counter()
        yield from self.free.gather(prefix, budget, chance)
        twigs = self.free.best(budget, cost, ahead)
        tokens, seconds = 1 + sum([twig.p for twig in twigs]), cost(1 + len(twigs)) + ahead
        if self.heads is None or self.heads.guesses:
            self.promised.mark(seconds, tokens)
            self._pace(alone / self.promised.each, (ahead + cost.aside * cost.requests) / alone)
        else:  # heads guess from the second round on, and again after a rest
            self.pause = 0
        self.spent = perf_counter() - began
        if self.rounds == 0:
            self.untold = _may_tell(prefix, cost)
        self.looked = True
        self.rounds, self.chain = self.rounds + 1, NOTHING
        if other is not None and self._asks(prefix, cost, other):
            self.chain = yield from self._chain(prefix, budget, cost, max(other(1), self.step), tokens / seconds)
            if len(self.chain):
                self.pause = 0
                self.free.add(Planted(self.chain), prefix)
                twigs = self.free.best(budget, cost)
        return planted(twigs)

    def _pace(self, gain: float, share: float) -> None:
        """Rest after this round if the last few bring less than plain decoding and looking is not for nothing.

        While it rests nothing is remembered, so it looks in vain a few times first, where a look costs little.
        """
        if gain >= 1 or share < LITTLE:
            self.rested = self.pause = 0
            self.vain = 0.0
            return
        self.vain += share
        if self.vain < VAIN:
            self.pause = 0
        else:
            self.rested = self.pause = max(min(2 * self.rested or SHORT, LONG), int(share / LITTLE))
            self.vain, self.promised = VAIN / 2, Pace()

    def _asks(self, prefix: Prefix, cost: Cost, other: Cost) -> bool:
        """Whether the draft model may be asked: now and then not, to know what rounds take without it."""
        if self.rounds % PROBE in (1, 2) or self.rounds < self.idle:  # the first round also reads the prompt
            return False
        return self.read or 2 * other(len(prefix)) <= cost(1) * min(prefix.left, LONG)

    def _chain(self, prefix: Prefix, budget: int, cost: Cost, step: float, rate: float) -> Proposing:
        """The draft model's likeliest tokens, one by one while the next is worth its time."""
        right = self.stood.value
        drawn: list[Drawn] = []
        sure: list[float] = []
        reach, here, probing = right, prefix, self.rounds % PROBE == 0
        began = perf_counter()
        while len(drawn) < budget:
            rows = 1 + len(drawn)
            if reach <= rate * (step + cost(rows + 1) - cost(rows)) and not probing:
                break
            scores: Scores = yield Score(Tree.chain(drawn), by=DRAFT)
            raw = scores.law(rows - 2)
            law = possible(here, raw)
            if law is None:
                break
            drawn.append(chosen(law.best))
            sure.append(raw[law.best])
            here, reach, probing = here.then((law.best,)), reach * (sure[-1] + right) / 2, False
        if drawn and self.read:
            self.step += ((perf_counter() - began) / len(drawn) - self.step) / 4
        return Tree.chain(drawn, sure)

    def _judge(self, tokens: int) -> None:
        """Time this round; leave the draft model out for a while where rounds with it take longer per token."""
        asked, seconds = bool(len(self.chain)), perf_counter() - self.began
        if self.rounds > 1 and (self.read or not asked):  # its first one is mostly reading
            (self.helped if asked else self.alone).mark(seconds, tokens)
        self.read = self.read or asked
        if not asked or self.helped.rounds < 2 or not self.alone.rounds:
            return
        if self.helped.each > LOSS * self.alone.each:
            self.doubt, self.helped = min(2 * self.doubt or PROBE, RARELY), Pace()
            self.idle = self.rounds + self.doubt
        else:
            self.doubt = 0

    def told(self, text: tuple[int, ...], tops: Tops) -> None:
        self.untold = False
        super().told(text, tops)

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Mark all sources, and the draft model's tokens up to its first wrong one; nothing if others drafted alone."""
        if not self.looked:
            return
        began = perf_counter()
        for (token, _), written in zip(self.chain.drawn, prefix.text[self.free.start :], strict=False):
            self.stood.mark(token == written)
            if token != written:
                break
        self._judge(len(prefix) - self.free.start)
        if self.untold:
            self.told(prefix.text, scores.tops)
        super().learn(prefix, tree, scores)
        self.spent += perf_counter() - began
        self.host += (min(self.spent, 2 * self.host + HOST) - self.host) / 4  # what lasts longer once is chance
        self.until, self.looked = len(prefix) + self.pause, False


def _may_tell(prefix: Prefix, cost: Cost) -> bool:
    """Whether the prompt is to tell its laws, which takes a part of a row, the output layer, for each of its tokens.

    It is where rows cost next to nothing, and where as many whole rows take no longer than what may be written.
    """
    row = (cost(WIDE) - cost(1)) / (WIDE - 1)
    return cost(WIDE) < 2 * cost(1) or min(len(prefix), TOLD) * row <= cost(1) * min(prefix.left, LONG)
