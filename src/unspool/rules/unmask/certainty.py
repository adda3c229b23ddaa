"""How sure a hole is: scores by name, and the holes that come first by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch

from ...core.chance import At, Role
from ...core.law import Law
from ...loops.denoise_state import DenoiseState

Certainty: TypeAlias = Callable[[DenoiseState, int], float]
"""A score of one hole at one look; the higher it is, the sooner the hole is filled."""


def confidence(state: DenoiseState, place: int) -> float:
    """max p: the model's own probability of its most probable token, whatever is drawn."""
    return state.peak(place).p


def drawn(state: DenoiseState, place: int) -> float:
    """p(x̂) of the token that was drawn: the choice then depends on the draw, which acts like a lower temperature."""
    return state.sure(place)


def margin(state: DenoiseState, place: int) -> float:
    """The lead of the most probable token over the second."""
    return state.peak(place).margin


def entropy(state: DenoiseState, place: int) -> float:
    """Minus the entropy in nats, so that the calmest hole comes first."""
    return -state.peak(place).entropy


def leftmost(state: DenoiseState, place: int) -> float:
    """Left to right."""
    return -place


def random(state: DenoiseState, place: int) -> float:
    """A uniformly random order, new at every look."""
    return state.random_order[place]


CERTAINTIES: Mapping[str, Certainty] = {
    rule.__name__: rule for rule in (confidence, drawn, margin, entropy, leftmost, random)
}


def ranked(state: DenoiseState, certainty: Certainty) -> list[int]:
    """All holes, the surest first; of equally sure ones the one further left."""
    return sorted(state.holes, key=lambda i: -certainty(state, i))


def foremost(state: DenoiseState, certainty: Certainty, count: int, heat: float = 0.0) -> list[int]:
    """The `count` surest holes, or all if there are fewer.

    With heat they are drawn without replacement, each ∝ exp(certainty / heat) among those left: the same as the best
    after Gumbel noise times `heat` was added to every score, but in steps that can be enumerated.
    """
    if count >= len(state.holes):
        return state.holes
    if heat <= 0:
        return ranked(state, certainty)[:count]
    scores = {i: certainty(state, i) for i in state.holes}
    rest, chosen = list(scores), []
    for k in range(count):
        law = Law(torch.tensor([scores[i] for i in rest], dtype=torch.float64) / heat)
        at = At(state.canvas.window[0], Role.ORDER, k + 1, state.canvas.step)  # k = 0 is for `random_order`
        chosen.append(rest.pop(law.draw(state.chance, at).token))
    return chosen
