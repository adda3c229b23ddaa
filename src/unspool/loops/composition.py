"""Which drafter and verifier are exact together: checked when a method is built of them."""

from __future__ import annotations

from ..core.asks import Verify
from ..core.errors import BadRequest
from ..core.verifier import decides_token_by_token
from .drafter import Draft, check_drafter


def check_composition(draft: Draft, verify: Verify) -> None:
    """Refuse what is no drafter or no verifier, and two that are not exact together."""
    check_drafter("speculate:draft", draft)
    if not callable(verify):
        raise BadRequest(
            f"speculate:verify={verify!r} cannot be used; expected a rule that is called with what was scored and "
            "with chance, and gives a Verdict, as sample_match and rejection do"
        )
    if draft.reuses_noise and not decides_token_by_token(verify):
        named = getattr(verify, "__name__", type(verify).__name__)
        raise BadRequest(
            f"{type(draft).__name__} under {named} would not be exact: it drafts with random numbers that are used"
            f" again in the next round, and {named} weighs a token by what was drafted after it. Use sample_match,"
            " race, rejection or another rule that is declared @token_by_token, or a drafter that draws anew in every"
            " round, such as Chain"
        )
