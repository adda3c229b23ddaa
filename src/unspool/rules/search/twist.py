"""Twists: what unfinished texts are guessed to be worth in the end, so that the right particles are gone on with."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ...core.asks import Ask
from ...core.law import NEVER
from ...core.warp.warp_limits import expect, real, whole
from .particle import Particle, ParticleWriter, log_mean
from .search_text import Text

ENDLESS = 1 << 20  # tokens: the end of the text comes first


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
