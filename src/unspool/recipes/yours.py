"""Methods and parts of one's own, as FILE.py:NAME: a drafter, a verifier, a whole method, or a function that makes one.

A function whose parameters are options (`unspool.core.option`) is called with those that the spec gives; so is a class.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ..core.asks import Verify
from ..core.claim import Entry, Method, registered, takes
from ..core.errors import BadRequest, cut
from ..core.option import made, options
from ..core.user_objects import loaded
from ..loops.drafter import Draft
from ..loops.speculate import Speculate

CALL = "a method is called as method(text, chance, warp, stop) and yields asks"


def yours(spec: str, given: Mapping[str, str]) -> Method | Draft | Verify:
    """What FILE.py:NAME is, made with these options if it takes any; BadRequest if it is none of the above."""
    found = loaded(spec)
    entry = claimed(spec)
    build = entry.build if entry is not None and entry.build is not None else found
    if _builds(build):
        found = made(spec, build, given)
    elif given:
        raise BadRequest(f"{cut(spec)} takes no options, and {', '.join(given)} was given")
    return _part(found, spec)


def claimed(spec: str) -> Entry | None:
    """What FILE.py:NAME claims, if it is a rule under @claims."""
    found = loaded(spec)
    return next((entry for entry in registered().values() if entry.rule is found), None)


def is_verifier(found: Any) -> bool:
    """Whether an object is called as verifiers are."""
    return not isinstance(found, (Draft, Speculate)) and takes(found, 2) and not takes(found, 4)


def _builds(found: Any) -> bool:
    """Whether an object makes something of options: a class, or a function all of whose parameters are options."""
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return False
    try:
        options(found)
    except (BadRequest, NameError, TypeError, ValueError):
        return inspect.isclass(found) and takes(found, 0)
    return True


def _part(found: Any, spec: str) -> Method | Draft | Verify:
    if isinstance(found, Draft) or takes(found, 4) or takes(found, 2):
        return found  # type: ignore[no-any-return]
    if inspect.isclass(found):
        raise BadRequest(f"{spec} is a class; give an object of it ({CALL}).")
    if not callable(found):
        raise BadRequest(f"{spec} is of the type {type(found).__name__}, and cannot be called; {CALL}.")
    given = ", ".join(inspect.signature(found).parameters) or "nothing"
    raise BadRequest(f"{spec} takes ({given}), but {CALL}, and a verifier as verify(scored, chance).")
