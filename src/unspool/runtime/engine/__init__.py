"""The engine: who joins when, what is asked of which model, and the contracts between it and whatever owns tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import overlap as overlap, price as price, sharing as sharing, trials as trials

__getattr__, __dir__ = lazily(__name__)
