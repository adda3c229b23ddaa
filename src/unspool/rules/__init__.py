"""One rule per file, by family: drafters, verifiers, unmasking, search, constraints, and methods made of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import constrain as constrain
    from . import decode as decode
    from . import draft as draft
    from . import grow as grow
    from . import search as search
    from . import unmask as unmask
    from . import verify as verify

__getattr__, __dir__ = lazily(__name__)
