"""Sequential Monte Carlo: particles with weights, so that what is wanted of whole texts is weighed and not masked."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Protocol, TypeAlias

from ...core.asks import Ask, Decoding
from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, Branching, Watchable, claims
from ...core.law import NEVER, Law
from ...core.option import expect, real, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ..constrain.awrs import FullMask, Propose
from ..constrain.parted import parted, timely
from ..constrain.potential import Potential, UnboundPotential
from .beam_cache import BeamCache
from .particle import Particle, ParticleWriter, end_of, log_mean, refuse_dead, shares
from .particle import log_marginal as log_marginal
from .search_text import Text, told

ENDLESS = 1 << 20  # tokens: the end of the text comes first


class Resampling(Protocol):
    """Chooses who goes on: of n particles, the i-th on the average n·wᵢ/Σw times."""

    def __call__(self, weights: Sequence[float], chance: Chance, position: int) -> list[int]:
        """The particle that each place is given to; its random numbers are at this position."""


def multinomial(weights: Sequence[float], chance: Chance, position: int) -> list[int]:
    """Every place by a draw of its own. Cost: the most noise."""
    law = Law.of(weights)
    return [_drawn(law, chance, position, place) for place in range(len(weights))]


def stratified(weights: Sequence[float], chance: Chance, position: int) -> list[int]:
    """Place j by a draw from the j-th n-th of the cumulated weights."""
    n, total = len(weights), sum(weights)
    ends = [0.0, *accumulate(w / total for w in weights)]

    def share(place: int) -> Law:
        low, high = place / n, (place + 1) / n
        return Law.of([max(0.0, min(end, high) - max(start, low)) for start, end in pairwise(ends)])

    return [_drawn(share(place), chance, position, place) for place in range(n)]


def systematic(weights: Sequence[float], chance: Chance, position: int) -> list[int]:
    """All places by one number u in [0, 1/n): place j takes who holds u + j/n. Cost: the least noise."""
    n, total = len(weights), sum(weights)
    ends = list(accumulate(w / total for w in weights))
    ends[-1] = 1.0
    # between two of these u the answer is the same, so it is enough to draw which stretch u is in
    cuts = sorted({0.0, 1.0, *((end * n) % 1.0 for end in ends)})
    stretches = [(low + high) / 2 for low, high in pairwise(cuts)]
    which = Law.of([high - low for low, high in pairwise(cuts)])
    u = stretches[_drawn(which, chance, position, 0)]
    return [next(i for i, end in enumerate(ends) if end * n > u + place) for place in range(n)]


def residual(weights: Sequence[float], chance: Chance, position: int) -> list[int]:
    """⌊n·w⌋ places for certain, the others by draws from what that leaves over."""
    n, total = len(weights), sum(weights)
    wanted = [n * w / total for w in weights]
    sure = [i for i, share in enumerate(wanted) for _ in range(int(share))]
    if len(sure) == n:
        return sure
    rest = Law.of([share - int(share) for share in wanted])
    return [*sure, *(_drawn(rest, chance, position, place) for place in range(len(sure), n))]


RESAMPLE: dict[str, Resampling] = {
    "multinomial": multinomial,
    "residual": residual,
    "stratified": stratified,
    "systematic": systematic,
}


def _drawn(law: Law, chance: Chance, position: int, place: int) -> int:
    return law.draw(chance, At(position, Role.ORDER, place)).token


class Twist(Protocol):
    """Puts a guess into the weights of live particles, in place of the one that is there.

    A guess is taken back before the end, so it may be anything but −∞ and the weights stay proper.
    """

    def __call__(
        self, pen: ParticleWriter, cloud: Sequence[Particle], held: Sequence[Text]
    ) -> Generator[Ask, Any, Sequence[Particle]]:
        """The particles with new guesses; what is held stays forkable."""

    @property
    def texts(self) -> int:
        """How many texts it writes for each particle."""


@dataclass(frozen=True)
class PrefixTwist:
    """The guess is what the potential says of the beginning: the prefix variant."""

    texts: int = 0

    def __call__(
        self, pen: ParticleWriter, cloud: Sequence[Particle], held: Sequence[Text]
    ) -> Generator[Ask, Any, Sequence[Particle]]:
        yield from ()
        return cloud


@dataclass(frozen=True)
class LookaheadTwist:
    """The guess is V̂ = 1/m·Σ weight·potential over `rollouts` texts that are written on from each particle.

    They go on for `steps` tokens, or to their end if that is 0; one that has not ended then counts as what the
    potential's prefix says. V̂ estimates E[what it will be worth | the beginning] without bias, and the weights are
    proper for any m, because a guess is taken back; `floor` is added to it, since a beginning whose few rollouts were
    all worthless must not die of that.
    """

    rollouts: int = 4
    steps: int = 0
    floor: float = 1e-3

    def __post_init__(self) -> None:
        expect(whole(self.rollouts, 1), "lookahead:rollouts", self.rollouts, "a whole number of texts from 1 on")
        expect(whole(self.steps, 0), "lookahead:steps", self.steps, "a whole number of tokens, 0 for all")
        fits = real(self.floor) and self.floor > 0
        expect(fits, "lookahead:floor", self.floor, "a finite weight above 0, so that no guess is final")

    @property
    def texts(self) -> int:
        return self.rollouts

    def __call__(
        self, pen: ParticleWriter, cloud: Sequence[Particle], held: Sequence[Text]
    ) -> Generator[Ask, Any, Sequence[Particle]]:
        m = self.rollouts
        # a copy of a dead or finished particle does not go on either, and keeps its place in the numbering
        aside = [replace(one, weight=0.0 if one.live else NEVER, guess=0.0) for one in cloud for _ in range(m)]
        here = [one.text for one in cloud if one.live]
        aside = yield from pen.grown(aside, self.steps or ENDLESS, pen.turn(len(aside)), [*here, *held])
        ahead = [log_mean([copy.weight for copy in aside[i * m : (i + 1) * m]]) for i in range(len(cloud))]
        return [
            one.heavier(0.0, _log_sum(log_v, math.log(self.floor))) if one.live else one
            for one, log_v in zip(cloud, ahead, strict=True)
        ]


def _log_sum(a: float, b: float) -> float:
    """log(eᵃ + eᵇ), b finite."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


Cloud: TypeAlias = Sequence[Particle]
Past: TypeAlias = list[Cloud]  # the particles as they were when each of the last blocks began


@claims(
    HEURISTIC,
    trials=lambda rule: [rule(2, FullMask(2.0), resample=multinomial, threshold=0.9)],
    paper="2504.05410",
    systems=("AWRS + SMC", "Power-SMC"),
    shaped=False,
)
@dataclass(frozen=True)
class Smc(Branching, Watchable):
    """Write `particles` texts side by side, each with a weight; drop light ones for copies of heavy ones; draw one.

    Wanted are texts in proportion to p(text)·1[constraint met]·exp(potential(text)), p the law after all other warps.
    A token comes from `propose` with a weight that makes up for what the constraint took away; a guess of what will
    follow, `potential.prefix` or what `twist` sees ahead, is multiplied in before resampling and taken back after. If
    the effective number 1/Σw̄² falls below `threshold` times the particles, at the end of a block of `block` tokens,
    `resample` chooses who goes on. After every block copies part by `moves` Metropolis steps: one of the last `back`
    blocks and all after it are written anew, and taken with probability min(1, their weight/that of the old ones).
    With `draft` above 0 another model proposes: tokens come from (1 − draft)·p + draft·q, q the draft model's law, and
    weigh p over that.
    Under a constraint the last token that fits must be one that ends the text, and a text that a stop string cuts off
    has weight 0. The constraint is taken out of the request's warps.

    `watch` is told all particles with their log-weights as scores; `log_marginal` estimates what share of the model's
    texts is wanted.

    Claim: HEURISTIC for the one text that is drawn at the end: its law tends to the wanted one with more particles; the
    gap printed is the one to plain decoding, for p². The weights are proper, E[Σw·1{text}]/n = p(text)·potential(text),
    which the tests enumerate. Where nothing is weighed the law is plain decoding's.
    Cost: one forward per token, of a row per live particle, and one of the draft model if it proposes; at most `rows`
    rows in all, then one of the finished texts.
    """

    SCORES = "log_weight"

    particles: int = 8
    propose: Propose = FullMask()  # noqa: RUF009  (frozen)
    potential: UnboundPotential = Potential()  # noqa: RUF009  (frozen)
    resample: Resampling = stratified
    threshold: float = 0.5
    block: int = 1
    moves: int = 0
    rows: int = 0
    back: int = 1
    twist: Twist = PrefixTwist()
    draft: float = 0.0

    def __post_init__(self) -> None:
        expect(whole(self.particles, 1), "smc:particles", self.particles, "a whole number of texts from 1 on")
        expect(real(self.threshold, 0), "smc:threshold", self.threshold, "a share of the particles; usual is 0.5")
        expect(whole(self.block, 1), "smc:block", self.block, "a whole number of tokens from 1 on")
        expect(whole(self.moves, 0), "smc:moves", self.moves, "a whole number of steps from 0 on")
        expect(whole(self.back, 1), "smc:back", self.back, "a whole number of blocks from 1 on")
        fits = real(self.draft, 0) and self.draft < 1
        expect(fits, "smc:draft", self.draft, "a share below 1, so that every token can come and no weight is endless")
        BeamCache(self.rows)

    @property
    def texts(self) -> int:
        return self.particles * ((2 if self.moves else 1) + self.twist.texts)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        warp, constraint = parted(warp)
        pen = ParticleWriter(BeamCache(self.rows), self.propose, self.potential.over(stop), chance, stop, self.draft)
        cloud: Cloud = [Particle(Text.begin(text, warp, stop), timely(constraint, stop))] * self.particles
        past: Past = []
        blocks = math.inf if stop.most is None else math.ceil(stop.most / self.block)  # after which all have ended
        try:
            while self._goes_on(pen, cloud, past):
                blocks -= 1
                past = [*past, cloud][-self.back :] if self.moves else []
                cloud = yield from self._grown(pen, past, cloud, 0)
                refuse_dead(cloud)
                if any(one.live for one in cloud) and self._is_uneven(cloud):
                    picks = self.resample(shares([one.weight for one in cloud]), chance, end_of(cloud))
                    mean = log_mean([one.weight for one in cloud])
                    cloud = [replace(cloud[i], weight=mean) for i in picks]
                    past = [[roots[i] for i in picks] for roots in past]
                # after every block but the last: moves that waited for uneven weights, or for texts that go on, would
                # leave other weights than they found
                for _ in range(self.moves if blocks > 0 else 0):
                    cloud, past = yield from self._rejuvenated(pen, cloud, past)
            pen.front = cloud
        finally:
            # cancelled within a block, the particles have come further than the end of the last one
            shown = max(cloud, pen.front or cloud, key=end_of)
            self.watch(sorted((one.text.ranked(one.weight) for one in shown), key=lambda text: -text.score))
        ended = [one for one in cloud if one.text.reason and one.weight > NEVER] or cloud
        law = Law.of(shares([one.weight for one in ended]))
        drawn = law.draw(chance, At(end_of(cloud), Role.ORDER, self.particles))
        return (yield from told([ended[drawn.token].text], pen.grove.forwards))

    def _goes_on(self, pen: ParticleWriter, cloud: Cloud, past: Past) -> bool:
        """Whether there is budget for those that are live, or a text that has ended may still be moved back to life."""
        live = [one.text for one in cloud if one.live]
        return pen.grove.affords(live) if live else any(one.live for roots in past for one in roots)

    def _grown(self, pen: ParticleWriter, past: Past, cloud: Cloud, number: int) -> Generator[Ask, Any, Cloud]:
        """A block more for all that are live, or as much of it as there is budget for, and a guess of what follows."""
        held = [one.text for roots in past for one in roots]
        grown = yield from pen.grown(cloud, self.block, number, held)
        return (yield from self.twist(pen, grown, held))

    def _rejuvenated(self, pen: ParticleWriter, cloud: Cloud, past: Past) -> Generator[Ask, Any, tuple[Cloud, Past]]:
        """Write the last blocks anew; each particle takes that with probability min(1, its weight / the old one's)."""
        number = pen.turn(self.particles * max(1, self.twist.texts))
        end = end_of(cloud)
        cut = Law.of([1.0] * len(past)).draw(pen.chance, At(end, Role.ACCEPT, number)).token
        fresh, stages = past[cut], list[Cloud]()
        for _ in past[cut:]:
            stages.append(fresh)
            fresh = yield from self._grown(pen, [*past, *stages[1:], cloud], fresh, number)
        size = self.block * len(stages)
        kept, taken = list(cloud), set[int]()
        for i, (old, new, root) in enumerate(zip(cloud, fresh, past[cut], strict=True)):
            both = root.live and old.weight > NEVER
            comparable = both and all(_grown_by(one, root, size) for one in (old, new))
            odds = math.exp(min(0.0, new.worth - old.worth)) if comparable else 0.0
            if odds > 0 and pen.chance.coin(odds, At(end, Role.RESIDUAL, number + i)):
                kept[i] = replace(new, weight=old.weight)
                taken.add(i)
        newer = [
            [new if i in taken else old for i, (old, new) in enumerate(zip(*pair, strict=True))]
            for pair in zip(past[cut:], stages, strict=True)
        ]
        return kept, [*past[:cut], *newer]

    def _is_uneven(self, cloud: Cloud) -> bool:
        return 1 / sum(w * w for w in shares([one.weight for one in cloud])) < self.threshold * len(cloud)


def _grown_by(one: Particle, root: Particle, size: int) -> bool:
    """Whether a particle has come so far from its root; the budget may have cut it."""
    return not one.live or len(one.text.tokens) == len(root.text.tokens) + size
