"""Trials: somebody else compiles a grammar first, where it may come from a stranger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Trial: TypeAlias = Callable[[str], None]
"""Compiles a grammar where it can do no harm; raises if that takes too long, too much memory, or crashes."""

_trial: ContextVar[Trial | None] = ContextVar("_trial", default=None)


@contextmanager
def under(trial: Trial | None) -> Iterator[None]:
    """Whatever this thread compiles in here, `trial` has compiled before."""
    token = _trial.set(trial)
    try:
        yield
    finally:
        _trial.reset(token)


def on_trial() -> bool:
    """Whether grammars may come from a stranger here."""
    return _trial.get() is not None


def try_first(grammar: str) -> None:
    """To be called before a grammar, in llguidance's own form, is compiled."""
    trial = _trial.get()
    if trial is not None:
        trial(grammar)
