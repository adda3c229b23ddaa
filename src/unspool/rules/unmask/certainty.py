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


def confidence(sight: DenoiseState, place: int) -> float:
    """max p: the model's own probability of its most probable token, whatever is drawn."""
    return sight.peak(place).p


def drawn(sight: DenoiseState, place: int) -> float:
    """p(x̂) of the token that was drawn: the choice then depends on the draw, which acts like a lower temperature."""
    return sight.sure(place)


def margin(sight: DenoiseState, place: int) -> float:
    """The lead of the most probable token over the second."""
    return sight.peak(place).margin


def entropy(sight: DenoiseState, place: int) -> float:
    """Minus the entropy in nats, so that the calmest hole comes first."""
    return -sight.peak(place).entropy


def leftmost(sight: DenoiseState, place: int) -> float:
    """Left to right."""
    return -place


def random(sight: DenoiseState, place: int) -> float:
    """A uniformly random order, new at every look."""
    return sight.random_order[place]


CERTAINTIES: Mapping[str, Certainty] = {
    rule.__name__: rule for rule in (confidence, drawn, margin, entropy, leftmost, random)
}


def ranked(sight: DenoiseState, certainty: Certainty) -> list[int]:
    """All holes, the surest first; of equally sure ones the one further left."""
    return sorted(sight.holes, key=lambda i: -certainty(sight, i))


def foremost(sight: DenoiseState, certainty: Certainty, count: int, heat: float = 0.0) -> list[int]:
    """The `count` surest holes, or all if there are fewer.

    With heat they are drawn without replacement, each ∝ exp(certainty / heat) among those left: the same as the best
    after Gumbel noise times `heat` was added to every score, but in steps that can be enumerated.
    """
    if count >= len(sight.holes):
        return sight.holes
    if heat <= 0:
        return ranked(sight, certainty)[:count]
    scores = {i: certainty(sight, i) for i in sight.holes}
    rest, chosen = list(scores), []
    for k in range(count):
        law = Law(torch.tensor([scores[i] for i in rest], dtype=torch.float64) / heat)
        at = At(sight.canvas.window[0], Role.ORDER, k + 1, sight.canvas.step)  # k = 0 is for `random_order`
        chosen.append(rest.pop(law.draw(sight.chance, at).token))
    return chosen
