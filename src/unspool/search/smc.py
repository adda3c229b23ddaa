"""Sequential Monte Carlo: particles with weights, so that what is wanted of whole texts is weighed and not masked."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..asks import Ask, Decoding
from ..chance import At, Chance, Role
from ..claim import HEURISTIC, Method, claims
from ..constrain.awrs import Adaptive, Geometric, Masked, Propose, Recursive
from ..constrain.constraint import State
from ..constrain.parted import parted, timely
from ..constrain.potential import Potential
from ..errors import EmptyLaw
from ..law import NEVER, Law
from ..stop import Stop
from ..warp.limits import expect, real, whole
from ..warp.warp import Warp
from .grove import Grove
from .resample import RESAMPLE, Resample, multinomial, stratified
from .text import Text, Watch, told, unwatched


def build(
    particles: int = 8,
    propose: str = "masked",
    power: float = 1.0,
    resample: str = "stratified",
    threshold: float = 0.5,
    block: int = 1,
    moves: int = 0,
    checks: int = 0,
    rows: int = 0,
) -> Method:
    """Particles for the request's constraint, and for p(text)^power if that is not 1."""
    known: dict[str, Propose] = {
        "masked": Masked(power),
        "recursive": Recursive(checks),
        "geometric": Geometric(),
        "adaptive": Adaptive(Recursive(checks)),
    }
    expect(propose in known, "smc:propose", propose, f"one of {', '.join(known)}")
    expect(power == 1 or propose == "masked", "smc:power", power, "1, unless propose=masked, which alone knows powers")
    expect(resample in RESAMPLE, "smc:resample", resample, f"one of {', '.join(RESAMPLE)}")
    return Smc(particles, known[propose], Potential(), RESAMPLE[resample], threshold, block, moves, rows)


@dataclass(frozen=True, eq=False)
class Particle:
    """A text with its log-weight, what its constraint knows, and what its weight holds of a guess about its future."""

    text: Text
    state: State | None
    weight: float = 0.0
    guess: float = 0.0

    @property
    def live(self) -> bool:
        """Whether it goes on."""
        return self.text.reason is None and self.weight > NEVER


@claims(
    HEURISTIC,
    trials=lambda rule: [rule(2, Masked(2.0), resample=multinomial, threshold=0.9)],
    build=build,
    paper="2504.05410",
    systems=("AWRS + SMC", "SMC reward-guided (prefix variant)", "Power-SMC"),
    shaped=False,
)
@dataclass(frozen=True)
class Smc:
    """Write `particles` texts side by side, each with a weight; drop light ones for copies of heavy ones; draw one.

    Wanted are texts in proportion to p(text)·1[constraint met]·exp(potential(text)), p the law after all other warps.
    A token comes from `propose` with a weight that makes up for what the constraint took away; `potential.prefix` is
    multiplied in before resampling and taken back after. If the effective number 1/Σw̄² falls below `threshold` times
    the particles, at the end of a block of `block` tokens, `resample` chooses who goes on, and copies part by `moves`
    Metropolis steps: the block is written anew, and taken with probability min(1, its weight/that of the old one).
    Under a constraint the last token that fits must be one that ends the text. The constraint is taken out of the
    request's warps.

    `watch` is told all particles with their log-weights as scores; `log_marginal` estimates what share of the model's
    texts is wanted.

    Claim: HEURISTIC for the one text that is drawn at the end: its law tends to the wanted one with more particles; the
    gap printed is the one to plain decoding, for p². The weights are proper, E[Σw·1{text}]/n = p(text)·potential(text),
    which the tests enumerate. Where nothing is weighed the law is plain decoding's. That rewards guide the prefix
    variant was reconstructed from an abstract.
    Cost: one forward per token, of a row per live particle; at most `rows` rows in all, then one of the finished texts.
    """

    particles: int = 8
    propose: Propose = Masked()  # noqa: RUF009  (frozen)
    potential: Potential = Potential()  # noqa: RUF009  (frozen)
    resample: Resample = stratified
    threshold: float = 0.5
    block: int = 1
    moves: int = 0
    rows: int = 0
    watch: Watch = unwatched

    def __post_init__(self) -> None:
        expect(whole(self.particles, 1), "smc:particles", self.particles, "a whole number of texts from 1 on")
        expect(real(self.threshold, 0), "smc:threshold", self.threshold, "a share of the particles; usual is 0.5")
        expect(whole(self.block, 1), "smc:block", self.block, "a whole number of tokens from 1 on")
        expect(whole(self.moves, 0), "smc:moves", self.moves, "a whole number of steps from 0 on")
        Grove(self.rows)

    @property
    def texts(self) -> int:
        """How many texts are kept at the same time."""
        return 2 * self.particles if self.moves else self.particles

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        """Draw after `text` until `stop`."""
        warp, constraint = parted(warp)
        grove, begin = Grove(self.rows), Particle(Text.begin(text, warp, stop), timely(constraint, stop))
        cloud = [begin] * self.particles
        try:
            while grove.affords([one.text for one in cloud if one.live]):
                roots = cloud
                cloud = yield from self._grown(grove, roots, 0, chance, stop)
                _refuse_dead(cloud)
                if any(one.live for one in cloud) and self._is_uneven(cloud):
                    picks = self.resample(shares([one.weight for one in cloud]), chance, _end(cloud))
                    gains = [cloud[i].weight - roots[i].weight for i in picks]
                    mean = log_mean([one.weight for one in cloud])
                    cloud, roots = [replace(cloud[i], weight=mean) for i in picks], [roots[i] for i in picks]
                    if self.moves:
                        cloud = yield from self._rejuvenated(grove, cloud, roots, gains, chance, stop)
        finally:
            self.watch(sorted((one.text.ranked(one.weight) for one in cloud), key=lambda text: -text.score))
        ended = [one for one in cloud if one.text.reason and one.weight > NEVER] or cloud
        law = Law.of(shares([one.weight for one in ended]))
        drawn = law.draw(chance, At(_end(cloud), Role.ORDER, self.particles))
        return (yield from told([ended[drawn.token].text], grove.forwards))

    def _grown(
        self, grove: Grove, cloud: list[Particle], number: int, chance: Chance, stop: Stop, held: Sequence[Text] = ()
    ) -> Generator[Ask, Any, list[Particle]]:
        """A block more for all that are live, or as much of it as there is budget for."""
        roots = [one.text for one in cloud] if self.moves else []
        for _ in range(self.block):
            live = [one.text for one in cloud if one.live]
            if not grove.affords(live):
                break
            raws = iter((yield from grove.score(live, [*roots, *held])))
            cloud = [
                self._moved(one, next(raws), number + i, chance, stop) if one.live else one
                for i, one in enumerate(cloud)
            ]
        return cloud

    def _rejuvenated(
        self,
        grove: Grove,
        cloud: list[Particle],
        roots: list[Particle],
        gains: list[float],
        chance: Chance,
        stop: Stop,
    ) -> Generator[Ask, Any, list[Particle]]:
        """Write the last block anew and take that instead with probability min(1, its weight / the old one's)."""
        n = self.particles
        for move in range(1, self.moves + 1):
            fresh = yield from self._grown(grove, roots, move * n, chance, stop, [one.text for one in cloud])
            for i, (new, root) in enumerate(zip(fresh, roots, strict=True)):
                gain = new.weight - root.weight
                whole_block = not new.live or len(new.text.tokens) == len(root.text.tokens) + self.block
                at = At(_end(cloud), Role.ACCEPT, (self.moves + move) * n + i)
                odds = math.exp(min(0.0, gain - gains[i])) if gain > NEVER and root.live and whole_block else 0.0
                if odds > 0 and chance.coin(odds, at):
                    cloud[i], gains[i] = replace(new, weight=cloud[i].weight), gain
        return cloud

    def _moved(self, one: Particle, raw: Law, number: int, chance: Chance, stop: Stop) -> Particle:
        """The particle with one more token, or dead."""
        law = one.text.prefix.shape(raw)
        token, weight, _ = self.propose(law, one.state, chance, At(len(one.text.prefix), Role.PICK, number))
        if token is None or weight == 0:
            return replace(one, weight=NEVER)
        text = one.text.then(token, raw, law, stop)
        state = None if one.state is None else one.state.step(token)
        heavier = one.weight - one.guess + math.log(weight)
        if text.reason is None:
            guess = self.potential.part(text.tokens)
            return Particle(text, state, heavier + guess, guess if guess > NEVER else 0.0)
        met = state is None or state.complete()
        return Particle(text, state, heavier + self.potential.whole(text.tokens) if met else NEVER)

    def _is_uneven(self, cloud: list[Particle]) -> bool:
        """Whether too few particles carry the weight."""
        return 1 / sum(w * w for w in shares([one.weight for one in cloud])) < self.threshold * len(cloud)


def shares(weights: Sequence[float]) -> list[float]:
    """Log-weights as shares of their sum."""
    top = max(weights)
    found = [math.exp(weight - top) for weight in weights]
    return [share / sum(found) for share in found]


def log_mean(weights: Sequence[float]) -> float:
    """The log of the mean weight."""
    top = max(weights)
    return top if top == NEVER else top + math.log(sum(math.exp(w - top) for w in weights) / len(weights))


def log_marginal(texts: Sequence[Text]) -> float:
    """log Σ p(text)·potential(text), estimated: its exponential is unbiased."""
    return log_mean([text.score for text in texts])


def _end(cloud: Sequence[Particle]) -> int:
    """Where the longest text ends: a place for random numbers that are about all of them."""
    return max(len(one.text.prefix) for one in cloud)


def _refuse_dead(cloud: Sequence[Particle]) -> None:
    if all(one.weight == NEVER for one in cloud):
        raise EmptyLaw(
            f"all {len(cloud)} particles have weight 0: what they wrote cannot meet the constraint or the potential "
            "any more. Use more particles, a higher temperature or more tokens, or loosen what is demanded."
        )
