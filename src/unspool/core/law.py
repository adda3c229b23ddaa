"""Categorical laws over the vocabulary: the one currency that models, warps, drafters and verifiers trade in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .errors import BadScores, EmptyLaw

if TYPE_CHECKING:
    from .chance import At, Chance


NEVER = -math.inf
LARGE, SPAN = 1 << 14, 128  # tokens of a vocabulary whose best is looked for in two steps, and of one span of it


def nothing_left() -> EmptyLaw:
    """The error of a law without a token."""
    return EmptyLaw(
        "every token is forbidden here, so no text can follow. "
        "Loosen the warps or constraints that together exclude the whole vocabulary."
    )


class Law:
    """A probability law over token ids, held as unnormalised log-weights on the device where the model left them.

    p(x) = exp(scores[x]) / Σ exp(scores). Nothing is normalised, sorted or moved to the host before somebody asks:
    the greedy token costs one max, a probability one log-sum-exp, a draw one cumulative sum.
    """

    def __init__(self, scores: Tensor) -> None:
        self._scores = scores

    @property
    def scores(self) -> Tensor:
        """The log-weights."""
        return self._scores

    @staticmethod
    def of(weights: Sequence[float]) -> Law:
        """The law proportional to the given weights, in float64."""
        return Law(torch.tensor(weights, dtype=torch.float64).log())

    @staticmethod
    def point(token: int, like: Law | None = None) -> Law:
        """The law that always gives `token`; `like` tells its vocabulary and device, where they are known."""
        return Point(token, like)

    @property
    def size(self) -> int:
        """Number of tokens in the vocabulary."""
        return self.scores.shape[0]

    # ---- what can be asked of a law

    @cached_property
    def best(self) -> int:
        """The most probable token; of several, the one with the lowest id."""
        scores, start = self.scores, 0
        if scores.is_cpu and scores.is_contiguous() and scores.shape[0] > LARGE and not scores.shape[0] % SPAN:
            # where the largest number stands is slow to find on a CPU, and how large it is not: so only in its span;
            # and in parts for which no threads are woken, that would wait where the next forward runs
            parts = scores.split(LARGE)  # type: ignore[no-untyped-call]
            spans = torch.cat([part.view(-1, SPAN).amax(1) for part in parts])
            start = SPAN * int(spans.argmax())
            scores = scores[start : start + SPAN]
        value, token = scores.max(0)
        self._refuse_unusable(float(value))
        return start + int(token)

    @cached_property
    def _largest(self) -> float:
        return float(self.scores.amax())

    @cached_property
    def log_z(self) -> float:
        """log Σ exp(scores): what normalises this law."""
        top = self.scores.amax()
        # in float64 from the best on: a float32 sum of scores near 100 would be off by 1e-5, and every p with it
        rest = (self.scores - top).exp().sum(dtype=torch.float64)
        best, total = torch.stack((top.double(), rest)).tolist()
        self._refuse_unusable(best)
        return float(best + math.log(total))

    @cached_property
    def p(self) -> Tensor:
        """All probabilities."""
        p = self.scores.softmax(0)
        if math.isnan(float(p[0])):  # then all are: some score is NaN or infinite, or every token is forbidden
            self._refuse_unusable(self._largest)
        return p

    def spread(self, like: Law) -> Tensor:
        """All probabilities, over the vocabulary and on the device of `like`."""
        return self.p

    def logprob(self, token: int) -> float:
        """log p(token); −∞ of a hole, whose number is below 0 and must not count from the end of the vocabulary."""
        return float(self.scores[token]) - self.log_z if token >= 0 else NEVER

    def __getitem__(self, token: int) -> float:
        return math.exp(self.logprob(token))

    @cached_property
    def cdf(self) -> Tensor:
        """Cumulative probabilities in id order, in float64 so that a large vocabulary does not round mass away."""
        return self.p.cumsum(0, dtype=torch.float64)

    @cached_property
    def steps(self) -> list[tuple[int, float]]:
        """Every possible token with the upper end of its interval of [0, 1): what enumeration walks over."""
        ends: list[float] = self.cdf.tolist()
        whole = ends[-1]  # in float32 the sum is not quite 1; `invert` scales too
        return [(x, end / whole) for x, (mass, end) in enumerate(zip(self.p.tolist(), ends, strict=True)) if mass > 0]

    def invert(self, uniform: float) -> int:
        """The token whose interval of the cumulative law holds `uniform` in [0, 1)."""
        cdf = self.cdf
        at = torch.searchsorted(cdf, cdf[-1] * uniform, right=True)
        return min(int(at), self.steps[-1][0]) if int(at) >= self.size else int(at)

    def draw(self, chance: Chance, at: At) -> Drawn:
        """A token drawn from this law, with the law it was drawn from."""
        return Drawn(chance.choose(self, at), self)

    def first(self, waits: Callable[[int], Tensor]) -> int:
        """The token that arrives first if x takes waits(size)[x] / p(x)."""
        value, token = (self.scores.double() - waits(self.size).to(self.scores.device).log()).max(0)
        self._refuse_unusable(float(value))
        return int(token)

    def is_empty(self) -> bool:
        """True if no token is possible."""
        return self._largest == NEVER

    # ---- how laws are made from laws

    def only(self, allowed: Tensor) -> Law:
        """This law given that the token is among `allowed` (a boolean mask)."""
        scores = self.scores
        if scores.device.type != "cpu":
            return Law(torch.where(allowed, scores, NEVER))
        # 1/1 − 1 is 0 and 1/0 − 1 is ∞: on a CPU four passes of arithmetic take half the time of one that branches
        return Law(scores - allowed.view(torch.uint8).to(scores.dtype).reciprocal_().sub_(1))

    def without(self, *tokens: int) -> Law:
        """This law given that the token is none of these; a hole never is."""
        scores, struck = self.scores.clone(), [token for token in tokens if token >= 0]
        scores[struck[0] if len(struck) == 1 else struck] = NEVER
        return Law(scores)

    def minus(self, q: Law, scale: float = 1.0) -> Law:
        """The residual, normalised [scale·p − q]₊; p itself if nothing is left (then p = q up to rounding)."""
        weights = scale * self.p - q.spread(self)
        rest = Law(weights.clamp_min(0).log())
        return self if rest.is_empty() else rest

    def temper(self, temperature: float) -> Law:
        """p(x)^(1/temperature), normalised; at 0 the greedy token."""
        if temperature == 0:
            return Law.point(self.best, self)
        return Law(self.scores / temperature)

    def mix(self, other: Law, weight: float) -> Law:
        """(1 − weight)·p + weight·other."""
        return Law(((1 - weight) * self.p + weight * other.spread(self)).log())

    def top(self, k: int) -> list[int]:
        """The k most probable tokens, best first."""
        tokens: list[int] = self.scores.topk(min(k, self.size)).indices.tolist()
        return tokens

    def _refuse_unusable(self, value: float) -> None:
        if math.isnan(value) or value == math.inf:
            raise BadScores(
                "the model returned NaN or infinite scores. Its weights or its precision are broken: "
                "try dtype fp32, and check the file with `unspool pull --check`."
            )
        if value == NEVER:
            raise nothing_left()

    def __repr__(self) -> str:
        p = self.scores.softmax(0)  # not self[x]: even a law that is empty or broken can be shown
        shown = ", ".join(f"{x}: {float(p[x]):.3g}" for x in self.top(5))
        return f"Law({{{shown}{', …' if self.size > 5 else ''}}})"


class Point(Law):
    """The law of a token that was not drawn but chosen: by argmax, by lookup, by force."""

    def __init__(self, token: int, like: Law | None = None) -> None:
        self.best, self._like = token, like

    @property
    def scores(self) -> Tensor:
        """Log-weights, made only if a warp insists on seeing them."""
        if self._like is None:
            raise TypeError("this point law does not know its vocabulary; use spread(like)")
        return self.spread(self._like).log()

    def spread(self, like: Law) -> Tensor:
        """All probabilities: one 1 among zeros; zeros alone if it is a hole, which is no token of the vocabulary."""
        p = torch.zeros_like(like.scores)
        if self.best >= 0:
            p[self.best] = 1.0
        return p

    def logprob(self, token: int) -> float:
        return 0.0 if token == self.best else NEVER

    def top(self, k: int) -> list[int]:
        """The token itself; others only where the vocabulary is known."""
        return super().top(k) if self._like is not None else [self.best][:k]

    @property
    def steps(self) -> list[tuple[int, float]]:
        return [(self.best, 1.0)]

    def invert(self, uniform: float) -> int:
        return self.best

    def first(self, waits: Callable[[int], Tensor]) -> int:
        return self.best

    def temper(self, temperature: float) -> Law:
        return self

    def is_empty(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"Point({self.best})"


class LeadingLaw(Law):
    """A few tokens of a law, with the probabilities that they have in it; all others count as impossible.

    What has to be kept of many laws: they would fill the memory.
    """

    def __init__(self, law: Law, tokens: Tensor) -> None:
        self._tokens, self._kept, self._size, self.log_z = tokens, law.scores[tokens], law.size, law.log_z

    @property
    def scores(self) -> Tensor:
        """The log-weights, made when somebody looks."""
        return self._kept.new_full((self._size,), NEVER).index_copy(0, self._tokens, self._kept)

    @property
    def size(self) -> int:
        return self._size

    @property
    def p(self) -> Tensor:
        """All probabilities; they need not sum to 1."""
        return (self.scores - self.log_z).exp()


class Drawn(NamedTuple):
    """A token together with the law it came from: a drafter cannot report any other q."""

    token: int
    law: Law


@lru_cache(maxsize=1 << 16)
def chosen(token: int) -> Drawn:
    """A token that a rule chose, by look-up, argmax or count, with its point law.

    Drafters choose the same tokens round after round; to look one up costs a fifth of making it anew.
    """
    return Drawn(token, Law.point(token))


def best_of(scores: Tensor, k: int) -> list[list[tuple[int, float]]]:
    """The k best tokens of every row of scores, each with its weight among them; one copy to the host."""
    values, tokens = scores.topk(min(k, scores.shape[1]))
    weights = values.float().softmax(1)
    return unpacked(torch.cat((weights, tokens.to(weights.dtype)), 1).tolist())  # ids below 2^24 are exact in a float


def unpacked(packed: list[list[float]]) -> list[list[tuple[int, float]]]:
    """Tokens with weights, row by row, from rows that have the weights first and then the ids."""
    return [list(zip(map(int, row[len(row) // 2 :]), row, strict=False)) for row in packed]
