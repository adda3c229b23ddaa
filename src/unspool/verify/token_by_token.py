"""What a verifier declares of itself, so that a composition with a drafter can be checked when it is built."""

from __future__ import annotations

from typing import Any, TypeVar

from ..asks import Verify
from ..draft.draft import Draft, check_drafter
from ..errors import BadRequest

V = TypeVar("V")

_declared: list[Any] = []  # rules: functions, and classes whose instances are rules


def token_by_token(rule: V) -> V:
    """Declare that a rule decides on every drafted token before it looks at what was drafted below it.

    Then a token below one that was refused has influenced nothing, and its random number may serve again in the next
    round, as drafters that use plain decoding's numbers have it.
    """
    _declared.append(rule)
    return rule


def decides_token_by_token(verify: Verify) -> bool:
    """Whether this rule, or its class, was declared so."""
    return any(verify is rule or (isinstance(rule, type) and isinstance(verify, rule)) for rule in _declared)


def check_composition(draft: Draft, verify: Verify) -> None:
    """Refuse what is no drafter or no verifier, and two that are not exact together."""
    check_drafter("speculate:draft", draft)
    if not callable(verify):
        raise BadRequest(
            f"speculate:verify={verify!r} cannot be used; expected a rule that is called with what was scored and "
            "with chance, and gives a Verdict, as walk and rejection do"
        )
    if draft.reuses_noise and not decides_token_by_token(verify):
        named = getattr(verify, "__name__", type(verify).__name__)
        raise BadRequest(
            f"{type(draft).__name__} under {named} would not be exact: it drafts with random numbers that are used"
            f" again in the next round, and {named} weighs a token by what was drafted after it. Use walk, race,"
            " rejection or another rule that is declared @token_by_token, or a drafter that draws anew in every round,"
            " such as Chain"
        )
