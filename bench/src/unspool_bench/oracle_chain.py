"""Chains: a Markov chain, seen as it is or through a noisy window; conditionals by forward–backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import torch
from torch import Tensor

from unspool.core.canvas import HOLE

from .oracle import Tokens


@dataclass(frozen=True)
class Markov:
    """A hidden Markov chain: states s₁ ~ start, sₜ ~ move[sₜ₋₁], and tokens yₜ ~ show[sₜ].

    p(yₜ = x | known) ∝ Σ_s α⁻ₜ(s) βₜ(s) show[s][x], where α⁻ₜ collects what is known left of t and βₜ what is right
    of it. With one token per state it is a plain Markov chain.

    Cost: places × states² per look.
    """

    size: int
    start: tuple[float, ...]
    move: tuple[tuple[float, ...], ...]
    show: tuple[tuple[float, ...], ...]

    @staticmethod
    def differing(vocab: int, size: int, items: Tokens) -> Markov:
        """Neighbours differ: a uniform item, then always a uniform one of the others."""
        count = len(items)
        return Markov(
            size,
            start=(1 / count,) * count,
            move=tuple(tuple((i != j) / (count - 1) for j in range(count)) for i in range(count)),
            show=tuple(tuple(float(x == item) for x in range(vocab)) for item in items),
        )

    def mass(self, answer: Tokens) -> float:
        """Σ over the states of start · move · show, by the forward pass."""
        state = self._start
        for place, token in enumerate(answer):
            state = (state @ self._move if place else state) * self._show[:, token]
        return float(state.sum())

    def given(self, known: Tokens) -> Tensor | None:
        """The smoothed law of every place."""
        seen = [self._seen(token) for token in known]
        before = self._forward(seen)
        after = self._backward(seen)
        if any(float((b * s * a).sum()) == 0 for b, s, a in zip(before, seen, after, strict=True)):
            return None
        rows = torch.stack([(b * a) @ self._show for b, a in zip(before, after, strict=True)])
        for place, token in enumerate(known):
            if token != HOLE:
                rows[place] = 0.0
                rows[place, token] = 1.0
        return rows / rows.sum(1, keepdim=True)

    def draw(self, random: Random) -> Tokens:
        """Tokens along a walk of the states."""
        state, told, states = -1, [], range(len(self.start))
        for place in range(self.size):
            state = random.choices(states, self.move[state] if place else self.start)[0]
            told.append(random.choices(range(len(self.show[state])), self.show[state])[0])
        return tuple(told)

    def _forward(self, seen: Sequence[Tensor]) -> list[Tensor]:
        """α⁻: the law of each state given what is known before its place."""
        states = [self._start]
        for here in seen[:-1]:
            states.append(_scaled((states[-1] * here) @ self._move))
        return states

    def _backward(self, seen: Sequence[Tensor]) -> list[Tensor]:
        """β: how likely each state makes what is known behind its place, up to a factor."""
        states = [torch.ones_like(self._start)]
        for here in reversed(seen[1:]):
            states.append(_scaled(self._move @ (states[-1] * here)))
        return states[::-1]

    def _seen(self, token: int) -> Tensor:
        return torch.ones_like(self._start) if token == HOLE else self._show[:, token]

    @cached_property
    def _start(self) -> Tensor:
        return torch.tensor(self.start, dtype=torch.float64)

    @cached_property
    def _move(self) -> Tensor:
        return torch.tensor(self.move, dtype=torch.float64)

    @cached_property
    def _show(self) -> Tensor:
        return torch.tensor(self.show, dtype=torch.float64)


def _scaled(state: Tensor) -> Tensor:
    """The same up to a factor, so that long chains do not vanish in rounding; nothing stays nothing."""
    total = state.sum()
    return state / total if total > 0 else state
