"""Chosen tokens: what was not drawn has the law that always gives it, and all choices of a token are one object."""

from __future__ import annotations

from functools import lru_cache

from .law import Drawn, Law


@lru_cache(maxsize=1 << 16)
def chosen(token: int) -> Drawn:
    """A token that a rule chose, by look-up, argmax or count, with its point law.

    Drafters choose the same tokens round after round; to look one up costs a fifth of making it anew.
    """
    return Drawn(token, Law.point(token))
