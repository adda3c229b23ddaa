"""One rule per file, by family: drafters, verifiers, unmasking, search, constraints, and methods made of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import constrain as constrain, decode as decode, draft as draft, grow as grow, search as search
    from . import unmask as unmask, verify as verify

__getattr__, __dir__ = lazily(__name__)
