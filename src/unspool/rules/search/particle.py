"""Particles: texts with weights, written on side by side."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from ...core.asks import Ask, GiveWay
from ...core.chance import At, Chance, Role
from ...core.errors import EmptyLaw
from ...core.law import NEVER, Law
from ...core.stop import Stop
from ..constrain.awrs import Propose
from ..constrain.constraint import State
from ..constrain.parted import meets
from ..constrain.potential import Potential
from ..draft.chain import DRAFT
from .beam_cache import BeamCache
from .search_text import Text


@dataclass(frozen=True, eq=False)
class Particle:
    """A text with its log-weight, what its constraint knows, and what its weight holds of a guess about its future.

    `worth` is the log-weight that its text would have without resampling, which sets `weight` anew.
    """

    text: Text
    state: State | None
    weight: float = 0.0
    guess: float = 0.0
    worth: float = 0.0

    @property
    def live(self) -> bool:
        """Whether it goes on."""
        return self.text.reason is None and self.weight > NEVER

    def heavier(self, gain: float, guess: float = 0.0) -> Particle:
        """With so much more log-weight, of which `guess` will be taken back; the guess before is."""
        gain += guess - self.guess
        own = guess if guess > NEVER else 0.0
        return replace(self, weight=self.weight + gain, worth=self.worth + gain, guess=own)


@dataclass(eq=False)
class ParticleWriter:
    """Writes particles on, each token with a weight that makes up for what it was not drawn from."""

    grove: BeamCache
    propose: Propose
    potential: Potential
    chance: Chance
    stop: Stop
    draft: float = 0.0  # the share of the draft model's law in what tokens are drawn from
    front: Sequence[Particle] = ()  # the particles themselves, as far as they have come
    _turns: count[int] = field(default_factory=lambda: count(1))

    def turn(self, size: int) -> int:
        """Where the random numbers of `size` texts begin that are written aside; those of the particles are first."""
        return next(self._turns) * size

    def grown(
        self, cloud: Sequence[Particle], tokens: int, number: int = 0, held: Sequence[Text] = ()
    ) -> Generator[Ask, Any, list[Particle]]:
        """So many tokens more for all that are live, or as many as there is budget for; what is held stays forkable."""
        cloud = list(cloud)
        for _ in range(tokens):
            live = [one.text for one in cloud if one.live]
            if not self.grove.affords(live):
                break
            raws = iter((yield from self.grove.score(live, held)))
            guides = iter((yield from self.grove.told_by(DRAFT, live)) if self.draft else [None] * len(live))
            moved = list(cloud)
            for i, one in enumerate(cloud):
                if one.live:
                    moved[i] = self._moved(one, next(raws), next(guides), number + i)
                    yield GiveWay()
            cloud = moved
            self.front = self.front if number else cloud
        return cloud

    def _moved(self, one: Particle, raw: Law, guide: Law | None, number: int) -> Particle:
        law = one.text.prefix.shape(raw)
        at = At(len(one.text.prefix), Role.PICK, number)
        source = law if guide is None else self._guided(law, guide)
        token, weight, _ = self.propose(source, one.state, self.chance, at)
        if token is None or weight == 0:
            return one.heavier(NEVER)
        if source is not law:
            weight *= math.exp(law.logprob(token) - source.logprob(token))
        text = one.text.then(token, raw, law, self.stop)
        state = None if one.state is None else one.state.step(token)
        moved, gain = replace(one, text=text, state=state), math.log(weight)
        if text.reason is None:
            return moved.heavier(gain, self.potential.part(text.tokens))
        met = meets(state, text.reason)
        return moved.heavier(gain + self.potential.whole(text.tokens) if met else NEVER)

    def _guided(self, law: Law, guide: Law) -> Law:
        """The law with a share of the guide's, of what both can write; so no weight is above 1/(1 − draft)."""
        possible = guide.only(law.scores > NEVER)
        return law if possible.is_empty() else law.mix(possible, self.draft)


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


def end_of(cloud: Sequence[Particle]) -> int:
    """Where the longest text ends: a place for random numbers that are about all of them."""
    return max(len(one.text.prefix) for one in cloud)


def refuse_dead(cloud: Sequence[Particle]) -> None:
    """An error if no particle is left."""
    if all(one.weight == NEVER for one in cloud):
        begun = max((len(one.text.tokens) for one in cloud), default=0)
        raise EmptyLaw(
            f"all {len(cloud)} particles have weight 0 after {begun} tokens: what they wrote cannot meet the constraint"
            " or the potential any more, or a proposal that asks for one token after the other found none within its"
            " `checks`. Use propose=masked, which finds all that are allowed, more particles, a higher temperature or "
            "more tokens, or loosen what is demanded."
        )
