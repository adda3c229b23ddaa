"""Methods by name: which rules make a method, what its options may be, and which names it is known by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import listing as listing, methods as methods

__getattr__, __dir__ = lazily(__name__)
