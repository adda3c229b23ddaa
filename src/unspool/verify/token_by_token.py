"""What a verifier declares of itself, so that a composition with a drafter can be checked when it is built."""

from __future__ import annotations

from typing import Any, TypeVar

from ..asks import Verify
from ..draft.draft import Draft, reuses_noise
from ..errors import BadRequest

V = TypeVar("V")


def token_by_token(rule: V) -> V:
    """Declare that a rule decides on every drafted token before it looks at what was drafted below it.

    Then a token below one that was refused has influenced nothing, and its random number may serve again in the next
    round, as drafters that use plain decoding's numbers have it.
    """
    declared: Any = rule
    declared.decides_token_by_token = True
    return rule


def check_composition(draft: Draft, verify: Verify) -> None:
    """Refuse a drafter and a verifier that are not exact together."""
    if reuses_noise(draft) and not getattr(verify, "decides_token_by_token", False):
        named = getattr(verify, "__name__", type(verify).__name__)
        raise BadRequest(
            f"{type(draft).__name__} under {named} would not be exact: it drafts with random numbers that are used"
            f" again in the next round, and {named} weighs a token by what was drafted after it. Use walk, race,"
            " rejection or another rule that is declared @token_by_token, or a drafter that draws anew in every round,"
            " such as Chain"
        )
