"""Stochastic beam search: several texts drawn without replacement, in one pass over a tree of beams."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count as count_up
from typing import Any

from ...core.asks import Ask, Decoding, GiveWay
from ...core.chance import At, Chance, Role
from ...core.claim import SEED, Branching, Watchable, claims
from ...core.law import Law
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...loops.drafter import possible
from .beam_cache import BeamCache
from .search_text import Text, told


@claims(
    SEED,
    trials=lambda rule: [rule(2)],
    paper="1903.06059",
    systems=("Stochastic Beam Search",),
    note="as far as `rows` reach",
)
@dataclass(frozen=True)
class Stochastic(Branching, Watchable):
    """Draw `width` different texts one after the other, each from the law of what is left, but all level by level.

    Think of every whole text as arriving at an exponential time of rate p(text): the order of arrival is that of draws
    without replacement, and a beginning arrives when its first text does. Level by level, the first `width` beginnings
    are kept. Kool et al. draw the times (as Gumbel numbers) and sort. Times have no memory, so their order alone can
    be drawn: after j beginnings, of masses p₁ … pⱼ, the next arrival is another child of one of these with rate
    pᵢ·(1 − Σ p(its children so far)), and the first child of beginning j + 1 with rate 1 − p₁ − … − pⱼ. So no noise
    per token of the vocabulary is needed, and every choice can be enumerated.

    `watch` is told all texts in their order; `weights` makes unbiased estimates of them.

    Claim: SEED. The first text is plain decoding's own. That all of them have the law of draws without replacement is
    enumerated in the tests.
    Cost: one forward per token, of `width` rows; at most `rows` rows in all, then what was drawn so far.
    """

    RANKS = True

    width: int = 4
    rows: int = 0

    def __post_init__(self) -> None:
        expect(whole(self.width, 1), "stochastic:width", self.width, "a whole number of texts from 1 on")
        BeamCache(self.rows)

    @property
    def texts(self) -> int:
        return self.width

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        grove = BeamCache(self.rows)
        texts = [Text.begin(text, warp, stop)]
        try:
            while grove.affords(live := [text for text in texts if text.reason is None]):
                raws = iter((yield from grove.score(live)))
                buds = list[Bud]()
                for beginning in texts:
                    buds.append(Bud(beginning, None if beginning.reason else next(raws), stop))
                    yield GiveWay()
                texts = yield from arrivals(buds, self.width, chance, len(text) + len(live[0].tokens))
        finally:
            self.watch(texts)
        return (yield from told(texts, grove.forwards))


@dataclass(eq=False)
class Bud:
    """A beginning that has arrived, and what of it has not yet been seen; a finished text has itself as only child."""

    text: Text
    raw: Law | None
    stop: Stop
    rest: Law = field(init=False)  # unnormalised: its children so far are struck out
    law: Law = field(init=False)
    dead: bool = field(init=False)  # warps leave no token after it, so no text begins so

    def __post_init__(self) -> None:
        self.dead = False
        if self.raw is not None:
            shaped = possible(self.text.prefix, self.raw)
            self.dead = shaped is None
            self.law = self.rest = self.raw if shaped is None else shaped

    @property
    def mass(self) -> float:
        """The probability of the beginning."""
        return math.exp(self.text.logp)

    @property
    def left(self) -> float:
        """The probability of its children that have not arrived."""
        if self.raw is None or self.dead or self.rest.is_empty():
            return 0.0
        return self.mass * math.exp(self.rest.log_z - self.law.log_z)

    def child(self, chance: Chance, at: At) -> Text:
        """The next child to arrive."""
        if self.raw is None:
            return self.text
        if self.dead:
            self.text.prefix.shape(self.raw).draw(chance, at)  # says that no token is left, and why
        token = self.rest.draw(chance, at).token
        self.rest = self.rest.without(token)
        return self.text.then(token, self.raw, self.law, self.stop)


def arrivals(buds: Sequence[Bud], count: int, chance: Chance, position: int) -> Generator[Ask, Any, list[Text]]:
    """The first `count` children to arrive, given the order in which their parents did."""
    came: list[Text] = []
    open_, unseen = list[Bud](), 1.0
    waiting = list(buds)
    for step in count_up():
        if len(came) == count:
            break
        yield GiveWay()
        lefts = [bud.left for bud in open_]
        if waiting:
            next_one = max(unseen, sum(bud.mass for bud in waiting))  # the sum is exact where little is left
            lefts.append(next_one)
        if not sum(lefts):
            break
        which = Law.of(lefts).draw(chance, At(position, Role.ORDER, step)).token
        if waiting and which == len(open_):
            open_.append(waiting.pop(0))
            unseen -= open_[-1].mass
            if open_[-1].dead and step > 0:  # no text begins so; where plain decoding's own does, it has failed
                continue
        # the very first is drawn with plain decoding's own number
        role = Role.DRAFT if came else Role.PICK
        came.append(open_[which].child(chance, At(position, role, len(came))))
    return came


def weights(texts: Sequence[Text]) -> list[float]:
    """Weights w with E[Σ w·f(text)] = Σ p·f, for texts in their order: p for all but the last, and the rest for it."""
    masses = [math.exp(text.logp) for text in texts[:-1]]
    return [*masses, 1.0 - sum(masses)]
