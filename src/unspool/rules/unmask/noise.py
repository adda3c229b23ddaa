"""How much of a canvas is filled at which step, and how much of that is masked again on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...core.errors import BadRequest
from ...core.warp.warp_limits import expect, real, whole


class Moment(NamedTuple):
    """One step of the reverse process: the filled share before and after it, and the chance of a token to be masked."""

    before: float
    after: float
    mask: float = 0.0

    @property
    def fill(self) -> float:
        """The chance of a hole to be filled, so that the share comes out: (αₛ − (1 − σ)·αₜ) / (1 − αₜ)."""
        return (self.after - (1 - self.mask) * self.before) / (1 - self.before) if self.before < 1 else 1.0

    @property
    def most(self) -> float:
        """The highest σ that can be made good: min(1, (1 − αₛ) / αₜ)."""
        return min(1.0, (1 - self.after) / self.before) if self.before > 0 else 1.0


class Noise(Protocol):
    """A schedule of so many steps."""

    @property
    def steps(self) -> int:
        """How many steps there are; after the last everything is filled."""

    def __call__(self, step: int) -> Moment:
        """What this step does."""


@dataclass(frozen=True)
class Even:
    """The same share is filled at every step, and nothing is masked again."""

    steps: int

    def __post_init__(self) -> None:
        expect(whole(self.steps, 1), "renoise:steps", self.steps, "a whole number of steps from 1 on")

    def __call__(self, step: int) -> Moment:
        return Moment(step / self.steps, (step + 1) / self.steps)


@dataclass(frozen=True)
class Capped:
    """σ = min(η, σ_max)."""

    steps: int
    eta: float = 0.008

    def __post_init__(self) -> None:
        expect(real(self.eta, 0, 1), "renoise:eta", self.eta, "a probability")

    def __call__(self, step: int) -> Moment:
        moment = Even(self.steps)(step)
        return moment._replace(mask=min(self.eta, moment.most))


@dataclass(frozen=True)
class Rescaled:
    """σ = η·σ_max."""

    steps: int
    eta: float = 0.015

    def __post_init__(self) -> None:
        expect(real(self.eta, 0, 1), "renoise:eta", self.eta, "a probability")

    def __call__(self, step: int) -> Moment:
        moment = Even(self.steps)(step)
        return moment._replace(mask=self.eta * moment.most)


@dataclass(frozen=True)
class Looped:
    """Fill up to the share `level`, stay there with σ = η from time `on` to time `off`, then fill the rest.

    Time runs from 1 to 0. In between as many holes are filled as tokens are masked, in expectation.
    """

    steps: int
    eta: float = 0.02
    on: float = 0.55
    off: float = 0.05
    level: float = 0.9

    def __post_init__(self) -> None:
        expect(whole(self.steps, 1), "renoise:steps", self.steps, "a whole number of steps from 1 on")
        if not 0 < self.off < self.on < 1 or not 0 < self.level < 1:
            raise BadRequest(
                f"a loop from time {self.on} to {self.off} at level {self.level} cannot be; expected 1 > on > off > 0 "
                "and a level between 0 and 1"
            )
        expect(real(self.eta, 0, (1 - self.level) / self.level), "renoise:eta", self.eta, "at most (1 − level) / level")

    def __call__(self, step: int) -> Moment:
        before, after = self._filled(step), self._filled(step + 1)
        return Moment(before, after, self.eta if before == after else 0.0)

    def _filled(self, step: int) -> float:
        time = 1 - step / self.steps
        if time > self.on:
            return (1 - time) * self.level / (1 - self.on)
        return self.level if time > self.off else 1 - time * (1 - self.level) / self.off
