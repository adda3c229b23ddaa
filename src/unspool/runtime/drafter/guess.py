"""What a trained drafter knows below one text: a guess at its end, and one after every drafted token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from ...core.law import Law


@dataclass(eq=False)
class Guess:
    """What follows a text, or a token drafted below it.

    `ahead` is what heads read here and at the places behind it, [places, width], if one forward has told several; one
    row if it has not. Without a row there is nothing to say here any more. `state` goes into the next guess, `hint` is
    added to what the head says.
    """

    token: int
    depth: int
    ahead: Tensor
    state: Tensor | None = None
    hint: Tensor | None = None
    above: Guess | None = None
    order: int = -1  # its number among all drafted below the text, which is also the order of their keys
    kids: dict[int, Guess] = field(default_factory=dict)
    law: Law | None = None


@dataclass(eq=False)
class DraftedText:
    """A kept text: its tokens, the slots of the pairs (state, next token) that were read, and what is guessed below."""

    tokens: list[int]
    slots: list[int] = field(default_factory=list)
    end: Guess | None = None
    drafts: list[int] = field(default_factory=list)  # slots of everything below, in the order of their keys
    depths: list[int] = field(default_factory=list)  # and how deep each of them is


class Unread(NamedTuple):
    """A text with the states of those of its tokens that are new; slots have been taken for them where they need some.

    `text.slots` already has them: the last `len(states)` of it are new.
    """

    text: DraftedText
    states: Tensor


class Step(NamedTuple):
    """A token below a guess of a text, whose own guess is wanted."""

    text: DraftedText
    under: Guess
    token: int


def line_of(guess: Guess | None) -> list[int]:
    """The numbers of a drafted token and of all drafted tokens above it."""
    found: list[int] = []
    while guess is not None and guess.order >= 0:
        found.append(guess.order)
        guess = guess.above
    return found


def by_text(steps: Sequence[Step]) -> list[list[int]]:
    """The numbers of these steps, grouped by their texts."""
    groups: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        groups.setdefault(id(step.text), []).append(number)
    return list(groups.values())
