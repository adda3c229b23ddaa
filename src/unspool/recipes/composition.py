"""Compositions: any drafter under any verifier; what is not exact together is refused before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..core.asks import Verify
from ..core.claim import Claim, Entry, Method, registered
from ..core.errors import BadRequest, cut
from ..loops.drafter import Draft
from ..loops.speculate import Speculate
from .verify import USUAL

ORDER = {claim: place for place, claim in enumerate(Claim)}  # strongest first


def composed(drafting: Any, verify: Verify, spec: str) -> Speculate:
    """A method, or a drafter, under this verifier; BadRequest if it drafts nothing, or they are not exact together."""
    if isinstance(drafting, Draft):
        drafting = Speculate(drafting)
    if not isinstance(drafting, Speculate):
        raise BadRequest(f"{cut(spec)!r} cannot be used: what stands before the plus drafts nothing to be verified")
    if drafting.draft.verifies is not None and drafting.draft.verifies is not verify:
        raise BadRequest(
            f"{cut(spec)!r} cannot be used: {type(drafting.draft).__name__} leaves drafting and verifying to the model,"
            f" which does it by {name_of(drafting.draft.verifies)}"
        )
    return replace(drafting, verify=verify)


def fills_canvas(found: Sequence[Entry | None]) -> bool:
    """Whether these are parts that fill a canvas: the first of them that is not of one's own does."""
    first = next((entry for entry in found if entry is not None), None)
    return first is not None and first.family == "unmask"


def expect_families(spec: str, found: Sequence[Entry | None]) -> None:
    """Refuse parts unless the first drafts and the second verifies, or all of them fill a canvas.

    Of one's own parts nothing is known yet.
    """
    if fills_canvas(found):
        other = next((entry for entry in found if entry is not None and entry.family != "unmask"), None)
        if other is not None:
            raise BadRequest(
                f"{cut(spec)!r} cannot be used: {other.name!r} is of the family {other.family}; expected parts that "
                "fill a canvas, as in factor + cached_dual"
            )
        return
    if len(found) > 2:
        raise BadRequest(
            f"the method {cut(spec)!r} has {len(found)} parts; expected a drafter and a verifier, as in chain + block"
        )
    drafter, verifier = found
    for entry, family, wanted in (
        (drafter, "draft", "a drafter before the plus"),
        (verifier, "verify", f"a verifier after it, one of {', '.join(USUAL)}"),
    ):
        if entry is None or (entry.family == family and (family != "verify" or entry.name in USUAL)):
            continue
        own = f"is of the family {entry.family}" if entry.family != family else "verifies nothing but its own drafts"
        raise BadRequest(
            f"{cut(spec)!r} cannot be used: {entry.name!r} {own}; expected {wanted}, as in chain:depth=4 + block"
        )


def weakest(*found: Claim) -> Claim:
    """The weakest of these claims, which is what all of them together promise."""
    return max(found, key=ORDER.__getitem__)


def verifier_of(method: Method) -> str | None:
    """What verifies the drafts of a method, by name; None if it drafts nothing."""
    return name_of(method.verify) if isinstance(method, Speculate) else None


def name_of(verify: Verify) -> str:
    """What a verifier is called: by its name among the rules, or by its own."""
    for entry in registered().values():
        if entry.rule is verify or (isinstance(entry.rule, type) and type(verify) is entry.rule):
            return entry.name
    return str(getattr(verify, "__name__", type(verify).__name__))
