"""A rule of the user's own, from FILE.py:NAME."""

from __future__ import annotations

import inspect
from typing import Any

from ...core.claim import Method
from ...core.errors import BadRequest
from ...core.user_objects import loaded
from ...recipes.methods import entries

_CALL = "a method is called as method(text, chance, warp, stop) and yields asks"


def is_rule(spec: str) -> bool:
    """Whether a name is FILE.py:NAME rather than that of a registered rule."""
    return ".py:" in spec or spec.endswith(".py")


def load_rule(spec: str) -> Method:
    """Run the file and take the attribute; the file's folder can be imported from, as if it were run itself."""
    return _method(loaded(spec), spec)


def _method(found: Any, spec: str) -> Method:
    """The object itself if it can be called as a method (or is registered under @claims), else why it cannot."""
    if any(entry.rule is found for entry in entries().values()):
        return found  # type: ignore[no-any-return]
    if inspect.isclass(found):
        raise BadRequest(f"{spec} is a class; give an object of it ({_CALL}).")
    if not callable(found):
        raise BadRequest(f"{spec} is a {type(found).__name__}, which cannot be called; {_CALL}.")
    try:
        inspect.signature(found).bind((), None, None, None)
    except TypeError:
        takes = ", ".join(inspect.signature(found).parameters) or "nothing"
        hint = " A verifier becomes one as Speculate(Chain(depth=2), rule)." if takes == "scored, chance" else ""
        raise BadRequest(f"{spec} takes ({takes}), but {_CALL}.{hint}") from None
    return found  # type: ignore[no-any-return]
