"""Truncations: give the tail of a law no chance. What each of them calls the tail is its one idea.

A truncation keeps every token that ties with the last one it keeps, so what it keeps depends on the law alone and not
on how a sort breaks ties. No truncation empties a law, so a point law passes through them all untouched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..law import NEVER, Law, Point
from ..option import expect, real, whole
from .warp import Warp


@dataclass(frozen=True)
class TopK(Warp):
    """Keep the tokens with p(x) ≥ the k-th largest probability: k of them, and more if others tie with the last.

    Paper: 1805.04833. Cost: one partial selection.
    """

    k: int

    def __post_init__(self) -> None:
        expect(whole(self.k, 1), "top_k", self.k, "a whole number from 1 on")

    def __call__(self, state: Any, law: Law) -> Law:
        """The law of the k most probable tokens."""
        if isinstance(law, Point) or self.k >= law.size:
            return law
        return at_least(law, law.scores, law.scores.topk(self.k).values[-1])


@dataclass(frozen=True)
class TopP(Warp):
    """Keep the nucleus: the smallest set {x : p(x) ≥ c} whose mass is at least p.

    Tokens that tie at the border are all kept, where transformers keeps as many of them as its sort happens to put
    first. Paper: 1904.09751. Cost: one log-sum-exp and a selection of the few hundred best; ten sums more if they do
    not cover p; the vocabulary is never sorted.
    """

    p: float

    def __post_init__(self) -> None:
        expect(real(self.p, 0, 1), "top_p", self.p, "a number from 0 (only the best) to 1 (all)")

    def __call__(self, state: Any, law: Law) -> Law:
        """The law of the nucleus."""
        if isinstance(law, Point) or self.p == 1:
            return law
        return at_least(law, law.scores, border(law, law.scores, self.p))


@dataclass(frozen=True)
class MinP(Warp):
    """Keep the tokens with p(x) ≥ p · max p.

    Paper: 2407.01082. Cost: one max.
    """

    p: float

    def __post_init__(self) -> None:
        expect(real(self.p, 0, 1), "min_p", self.p, "a number from 0 (all) to 1 (only the best)")

    def __call__(self, state: Any, law: Law) -> Law:
        """The law of the tokens that are not much less probable than the best."""
        if isinstance(law, Point) or self.p == 0:
            return law
        return at_least(law, law.scores, law.scores.amax() + math.log(self.p))


@dataclass(frozen=True)
class Typical(Warp):
    """Keep the tokens whose surprise is nearest to the expected one, |−log p(x) − H| ≤ c, with least mass ≥ `mass`.

    The best token is not always among them. Paper: 2202.00666. Cost: one entropy and a selection as for TopP.
    """

    mass: float

    def __post_init__(self) -> None:
        expect(real(self.mass, 0, 1) and self.mass > 0, "typical", self.mass, "a number above 0, up to 1 (all)")

    def __call__(self, state: Any, law: Law) -> Law:
        """The law of the typical tokens."""
        if isinstance(law, Point) or self.mass == 1:
            return law
        surprise = -law.scores.log_softmax(0)
        nearness = -(surprise - entropy(law, surprise)).abs()
        return at_least(law, nearness, border(law, nearness, self.mass))


@dataclass(frozen=True)
class Epsilon(Warp):
    """Keep the tokens with p(x) ≥ ε, and the best one in any case.

    Paper: 2210.15191. Cost: one log-sum-exp and one max.
    """

    epsilon: float

    def __post_init__(self) -> None:
        expect(_cutoff(self.epsilon), "epsilon", self.epsilon, "a number from 0 (all), below 1; usual is 0.0003")

    def __call__(self, state: Any, law: Law) -> Law:
        """The law of the tokens that are probable enough."""
        return law if isinstance(law, Point) or self.epsilon == 0 else probable(law, math.log(self.epsilon))


@dataclass(frozen=True)
class Eta(Warp):
    """Keep the tokens with p(x) ≥ η = min(ε, √ε · e^−H), and the best one in any case.

    Where the law is flat (H large) less probable tokens stay. Paper: 2210.15191. Cost: one entropy and one max.
    """

    epsilon: float

    def __post_init__(self) -> None:
        expect(_cutoff(self.epsilon), "eta", self.epsilon, "a number from 0 (all), below 1; usual is 0.0003")

    def __call__(self, state: Any, law: Law) -> Law:
        """The law of the tokens that are probable enough for how sure the model is."""
        if isinstance(law, Point) or self.epsilon == 0:
            return law
        log = math.log(self.epsilon)
        return probable(law, min(log, log / 2 - entropy(law, -law.scores.log_softmax(0))))


@dataclass(frozen=True)
class TopNSigma(Warp):
    """Keep the tokens with score ≥ max − n·σ, where σ is the standard deviation of all finite scores.

    Temperature scales max and σ alike, so the kept set is the same at any temperature. It is the noise of the whole
    vocabulary that σ measures: apply it before other truncations. Paper: 2411.07641. Cost: one variance and one max.
    """

    n: float

    def __post_init__(self) -> None:
        expect(real(self.n, 0), "top_n_sigma", self.n, "a finite number from 0 (only the best) on; usual is 1")

    def __call__(self, state: Any, law: Law) -> Law:
        """The law of the tokens that stand out of the noise."""
        if isinstance(law, Point):
            return law
        scores, finite = law.scores, law.scores
        if float(scores.amin()) == NEVER:
            finite = scores[scores > NEVER]
            if len(finite) == 0:
                return law  # it is for the law itself to say that it is empty
        return at_least(law, scores, scores.amax() - self.n * finite.std(correction=0))


def at_least(law: Law, rank: Tensor, bar: Tensor | float) -> Law:
    """The law of the tokens that do not rank below the bar.

    Asked this way round, NaN stays in, for the law to refuse it as broken rather than as empty.
    """
    return Law(law.scores.masked_fill(rank < bar, NEVER))


def border(law: Law, rank: Tensor, mass: float) -> Tensor:
    """The rank of the last token that is needed, taking them by rank, highest first, to gather this mass.

    It is that of a full sort, but only the head is sorted, as most laws have their mass there, or else the stretch that
    halving leaves. How ties are ordered does not matter: the border is the same wherever among equals it falls.
    """
    mass *= float(law.p.sum(dtype=torch.float64))  # a float32 softmax may be off by 1e-5
    head, tokens = rank.topk(min(256, law.size))
    gathered = law.p[tokens].cumsum(0, dtype=torch.float64)
    if float(gathered[-1]) >= mass or len(head) == law.size:
        return head[min(int((gathered < mass).sum()), len(head) - 1)]

    low, high, before = NEVER, float(head[0]) + 1, 0.0  # the tokens that rank from `high` on do not hold the mass
    for _ in range(10):
        middle = high - 32 if low == NEVER else (low + high) / 2  # ranks are in nats: e^-32 is next to nothing
        held = float(torch.where(rank >= middle, law.p, 0).sum(dtype=torch.float64))
        if held >= mass:
            low = middle
        else:
            high, before = middle, held
    stretch = (rank >= low) & (rank < high)
    ranks, order = rank[stretch].sort(descending=True)
    if len(ranks) == 0:
        return rank.amin()  # all are needed: rounding left their sum below the mass
    gathered = before + law.p[stretch][order].cumsum(0, dtype=torch.float64)
    return ranks[min(int((gathered < mass).sum()), len(ranks) - 1)]


def probable(law: Law, log_p: float) -> Law:
    """The law of the tokens with log p(x) ≥ log_p, and of the best."""
    return at_least(law, law.scores, min(law.log_z + log_p, float(law.scores.amax())))


def entropy(law: Law, surprise: Tensor) -> float:
    """H = −Σ p log p in nats, given the surprise −log p of every token."""
    # an impossible token has infinite surprise and no weight; 0 · finite is 0 where 0 · ∞ would be NaN
    return float(torch.dot(law.p, surprise.clamp_max(torch.finfo(law.scores.dtype).max)))


def _cutoff(given: float) -> bool:
    return real(given, 0, 1) and given < 1
