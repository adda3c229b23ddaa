"""Trials: somebody else compiles a grammar first, where it may come from a stranger; and searches that may be ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Trial: TypeAlias = Callable[[str], None]
"""Compiles a grammar where it can do no harm; raises if that takes too long, too much memory, or crashes."""

Breath: TypeAlias = Callable[[], None]
"""Lets others have the interpreter for a moment; raises if a search has gone on for too long, or for nobody."""

_trial: ContextVar[Trial | None] = ContextVar("_trial", default=None)
_breath: ContextVar[Breath | None] = ContextVar("_breath", default=None)


@contextmanager
def under(trial: Trial | None, breath: Breath | None = None) -> Iterator[None]:
    """Whatever this thread compiles in here, `trial` has compiled before; and its searches take `breath`."""
    tokens = _trial.set(trial), _breath.set(breath)
    try:
        yield
    finally:
        _trial.reset(tokens[0])
        _breath.reset(tokens[1])


def on_trial() -> bool:
    """Whether grammars may come from a stranger here."""
    return _trial.get() is not None


def try_first(grammar: str) -> None:
    """To be called before a grammar, in llguidance's own form, is compiled."""
    trial = _trial.get()
    if trial is not None:
        trial(grammar)


def breathe() -> None:
    """To be called in every round of a search that is made in Python before a text begins."""
    breath = _breath.get()
    if breath is not None:
        breath()
