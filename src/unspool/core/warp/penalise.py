"""Penalties and biases: make tokens less or more likely for having been said, or by decree."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..errors import BadRequest
from ..law import NEVER, Law, Point
from ..option import expect, real, whole
from .warp import Warp

# The state of a penalty is the tokens it looks at, as a tensor on the host: a list would have to be converted for every
# law. It is never written to. A finite change of weights leaves a point law the point it is.


@dataclass(frozen=True)
class Repetition(Warp):
    """Divide the positive scores of all tokens of the text, prompt included, by `penalty`; multiply the negative ones.

    This looks at raw logits, not at probabilities: two models with the same law but shifted logits are penalised
    differently. So apply it first. Below 1 it rewards. Paper: 1909.05858. Cost: one gather and scatter over the text.
    """

    penalty: float

    def __post_init__(self) -> None:
        fits = real(self.penalty, 0) and self.penalty > 0
        expect(fits, "repetition", self.penalty, "a finite number above 0 (1 is none, above 1 discourages)")

    def start(self, text: Sequence[int]) -> Tensor:
        """The tokens of the prompt."""
        return _tensor(text)

    def step(self, state: Tensor, token: int) -> Tensor:
        """One token more."""
        return torch.cat((state, _tensor((token,))))

    def beside(self, tokens: Sequence[int], prompt: int, place: int) -> Tensor:
        """All tokens that stand elsewhere."""
        return _tensor([x for i, x in enumerate(tokens) if x >= 0 and i != place])

    def __call__(self, state: Tensor, law: Law) -> Law:
        """The law with repetitions discouraged."""
        if isinstance(law, Point) or self.penalty == 1:
            return law
        seen = _known(state, law)
        old = law.scores[seen]
        new = torch.where(old < 0, old * self.penalty, old / self.penalty)
        return Law(law.scores.scatter(0, seen, new))  # a token that stands in `seen` twice gets the same value twice


@dataclass(frozen=True)
class Generated(Warp):
    """A penalty for tokens that were generated, which is all its state; the prompt does not count."""

    penalty: float

    def __post_init__(self) -> None:
        name = type(self).__name__.lower()
        expect(real(self.penalty), name, self.penalty, "a finite number (0 is none, above 0 discourages)")

    def start(self, text: Sequence[int]) -> Tensor:
        """Nothing generated yet."""
        return _tensor(())

    def step(self, state: Tensor, token: int) -> Tensor:
        """One token more."""
        return torch.cat((state, _tensor((token,))))

    def beside(self, tokens: Sequence[int], prompt: int, place: int) -> Tensor:
        """All tokens behind the prompt that stand elsewhere."""
        return _tensor([x for i, x in enumerate(tokens) if x >= 0 and i >= prompt and i != place])

    def _idle(self, state: Tensor, law: Law) -> bool:
        return isinstance(law, Point) or self.penalty == 0 or len(state) == 0


@dataclass(frozen=True)
class Frequency(Generated):
    """Subtract `penalty` · (how often x was generated) from the score of x; the prompt does not count.

    As in the OpenAI API; below 0 it rewards. Cost: one count of the generated tokens.
    """

    def __call__(self, state: Tensor, law: Law) -> Law:
        """The law with frequent tokens discouraged."""
        if self._idle(state, law):
            return law
        counts = torch.bincount(_known(state, law), minlength=law.size)
        return Law(law.scores - self.penalty * counts.to(law.scores.dtype))


@dataclass(frozen=True)
class Presence(Generated):
    """Subtract `penalty` from the score of every token that was generated; the prompt does not count.

    As in the OpenAI API; below 0 it rewards. Cost: one gather and scatter over the generated tokens.
    """

    def __call__(self, state: Tensor, law: Law) -> Law:
        """The law with tokens discouraged that are already there."""
        if self._idle(state, law):
            return law
        seen = _known(state, law)
        return Law(law.scores.scatter(0, seen, law.scores[seen] - self.penalty))


@dataclass(frozen=True)
class LogitBias(Warp):
    """Add a bias to the scores of some tokens: {token: bias}; −∞ forbids a token, and no bias allows a forbidden one.

    Tokens that the vocabulary does not have are passed over. Cost: one scatter over the biased tokens.
    """

    bias: Mapping[int, float]

    def __post_init__(self) -> None:
        for token, bias in self.bias.items():
            if not (whole(token, 0) and (real(bias) or bias == NEVER)):  # no word is put together for one that fits
                expect(whole(token, 0), "a token of logit_bias", token, "a whole number from 0 on")
                raise BadRequest(f"the logit_bias of token {token} is {bias!r}; expected a finite number, or -inf.")
        object.__setattr__(self, "bias", dict(sorted(self.bias.items())))  # a copy: the caller's may change

    @cached_property
    def _sorted(self) -> list[int]:
        return list(self.bias)

    @cached_property
    def _table(self) -> tuple[Tensor, Tensor]:
        return _tensor(tuple(self.bias)), torch.tensor(tuple(self.bias.values()), dtype=torch.float64)

    def __call__(self, state: None, law: Law) -> Law:
        """The biased law."""
        if isinstance(law, Point) and self.bias.get(law.best) != NEVER:
            return law
        tokens, biases = self._table
        scores, n = law.scores, bisect_left(self._sorted, law.size)
        return Law(scores.index_add(0, tokens[:n].to(scores.device), biases[:n].to(scores)))


def _tensor(tokens: Sequence[int]) -> Tensor:
    return torch.tensor(tokens, dtype=torch.int64)


def _known(tokens: Tensor, law: Law) -> Tensor:
    """These tokens where the law is; those it does not know are left out, as an input can have more than an output."""
    return tokens[tokens < law.size].to(law.scores.device)
