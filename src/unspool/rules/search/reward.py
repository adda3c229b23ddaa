"""Rewards: what a function in Python makes of a finished text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from ...core.errors import BadRequest
from ...core.stop import Stop
from ...core.user_objects import loaded
from ..constrain.potential import told
from .search_text import Text

Reward: TypeAlias = Callable[[str], float]
"""How good a text is, higher for better: the share of tests that it passes, what a reward model says of it."""


def written(tokens: tuple[int, ...], stop: Stop, trim: int = 0) -> str:
    """The text of some tokens, without what a stop string takes back."""
    if stop.piece is None:
        raise BadRequest("a reward reads text: it needs a stop that knows the bytes of tokens (piece=)")
    data = b"".join(map(stop.piece, tokens))
    return data[: len(data) - trim].decode("utf-8", "replace")


class Grader:
    """Asks a reward once for every text, however its tokens split it, and lets through only what can be compared."""

    def __init__(self, reward: Reward, stop: Stop) -> None:
        self._reward, self._stop = reward, stop
        self._known: dict[str, float] = {}

    def __call__(self, text: Text) -> float:
        return self.of(written(text.tokens, self._stop, text.trim))

    def of(self, text: str) -> float:
        """The reward of a text as it reads."""
        if text not in self._known:
            self._known[text] = asked(self._reward, text)
        return self._known[text]


def asked(reward: Reward, text: str) -> float:
    """What a reward says of a text, or an error that shows which text it failed on."""
    named, shown = getattr(reward, "__name__", "it"), text if len(text) <= 80 else "…" + text[-80:]
    return told(reward, text, f"the reward {named}", f"the text {shown!r}")


def reward_of(spec: str) -> Reward:
    """The function that FILE.py:NAME means; of several, joined by *, the sum: potentials exp(reward) multiply."""
    first, *others = [_named(one) for one in spec.split("*")]
    if not others:
        return first

    def together(text: str) -> float:
        return asked(first, text) + sum(asked(one, text) for one in others)

    return together


def _named(spec: str) -> Reward:
    found = loaded(spec)
    if not callable(found):
        raise BadRequest(f"{spec} is of the type {type(found).__name__}; expected a function from a text to a number")
    return found  # type: ignore[no-any-return]


def likelihood(text: Text) -> float:
    """exp(mean log p) of a text, for whoever has no reward: between 0 and 1."""
    return math.exp(text.logp / len(text.tokens))
