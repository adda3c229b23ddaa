"""The reverse process of masked diffusion, and tokens that are masked again on its way: how many are at which step."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ...core.canvas import Canvas, Field, Status
from ...core.chance import At, Role
from ...core.claim import HEURISTIC, Method, claims
from ...core.errors import BadRequest
from ...core.option import expect, real, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Rule, StatefulRule, View, Viewing, begun, look
from .unmask_trials import Brief


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


@dataclass(frozen=True)
class Unchanged(Rule):
    """What `view` shows, asked for only if the canvas or the places are others than last time."""

    view: View = look

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        return self.view(canvas, places)

    def begin(self) -> _Last:
        return _Last(begun(self.view))


@dataclass
class _Last:
    """The last look, and the tokens it was at."""

    view: View
    tokens: tuple[int, ...] = ()
    field: Field = field(default_factory=lambda: Field({}))

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Viewing:
        if canvas.tokens == self.tokens and all(i in self.field for i in places):
            return Field({i: self.field[i] for i in places}, final=self.field.final & set(places))
        self.field, self.tokens = (yield from self.view(canvas, places)), canvas.tokens
        return self.field


def _trial(size: int) -> Method:
    noise = Rescaled(3, eta=1.0)
    return Denoise(Reverse(noise), size, view=Unchanged(), remask=Renoise(noise))


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda _: [Brief(_trial)],
    paper="2503.00307",
    systems=("ReMDM (cap, rescale, loop, conf)", "MDLM (ancestral sampling)"),
)
@dataclass(frozen=True)
class Renoise:
    """Mask every token again with the chance σ of its step, and fill holes so much the more: ReMDM.

    Hole → token with (αₛ − (1 − σ)·αₜ) / (1 − αₜ), token → hole with σ ≤ min(1, (1 − αₛ)/αₜ), α the share that is
    filled: so after each step a place is filled with probability αₛ, whatever σ is. Time is the canvas's own, so this
    is not for blocks. A look at a canvas that has not changed is not asked for again.

    Claim: HEURISTIC; what is filled in one step is drawn as if it were independent. σ = 0 is ancestral sampling of
    MDLM. It loses on tasks where holes filled together contradict each other in ways that no single place shows.
    Cost: at most one look per step, and `steps` steps.
    """

    noise: Noise

    @property
    def looks(self) -> int:
        return self.noise.steps

    def asks(self, canvas: Canvas) -> Collection[int]:
        """A draft, when all is filled before all steps are made: so that time goes on."""
        return _waiting(canvas) if any(self.noise(n).mask for n in range(canvas.step, self.noise.steps)) else ()

    def __call__(self, state: DenoiseState, canvas: Canvas) -> Canvas:
        step = state.canvas.step
        if step >= self.noise.steps:
            return canvas
        sigma = self.noise(step).mask
        return canvas.remask(i for i in _drafts(state.canvas) if _gone(state, i, sigma))


@dataclass(frozen=True)
class Reverse:
    """Fill each hole with the chance of its step, independently of all others: it may be none, or all."""

    noise: Noise

    def __call__(self, state: DenoiseState) -> Collection[int]:
        step = state.canvas.step
        fill = self.noise(step).fill if step < self.noise.steps else 1.0
        return [i for i in state.holes if state.chance.coin(fill, At(i, Role.ORDER, round=step))]


@dataclass(frozen=True)
class Doubtful(StatefulRule):
    """Mask a token again with the chance softmaxᵢ(−cᵢ)·σ_max, c its probability when it was filled: ReMDM-conf.

    As in the paper holes are filled as if σ were 0, so that less than αₛ is filled until the last step.
    """

    noise: Noise

    @property
    def looks(self) -> int:
        return self.noise.steps

    def asks(self, canvas: Canvas) -> Collection[int]:
        return _waiting(canvas) if canvas.step < self.noise.steps else ()

    def begin(self) -> _Doubts:
        return _Doubts(self.noise, self)


@dataclass
class _Doubts:
    """The probability that each token had when it was filled."""

    noise: Noise
    rule: Doubtful
    sure: dict[int, float] = field(default_factory=dict)

    @property
    def looks(self) -> int:
        return self.noise.steps

    def asks(self, canvas: Canvas) -> Collection[int]:
        return self.rule.asks(canvas)

    def __call__(self, state: DenoiseState, canvas: Canvas) -> Canvas:
        step, old = state.canvas.step, _drafts(state.canvas)
        self.sure |= {i: state.raw[i][canvas.tokens[i]] for i in state.holes if canvas.tokens[i] >= 0}
        if step >= self.noise.steps or not old:
            return canvas
        weights = {i: math.exp(-self.sure[i]) for i in old}
        share = self.noise(step).most / sum(weights.values())
        return canvas.remask(i for i in old if _gone(state, i, weights[i] * share))


def _drafts(canvas: Canvas) -> list[int]:
    return [i for i in range(*canvas.window) if canvas.status[i] == Status.DRAFT]


def _waiting(canvas: Canvas) -> list[int]:
    return [] if canvas.holes else _drafts(canvas)[:1]


def _gone(state: DenoiseState, place: int, chance: float) -> bool:
    return state.chance.coin(chance, At(place, Role.ACCEPT, round=state.canvas.step))
