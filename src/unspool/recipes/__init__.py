"""Methods by name: which rules make a method, what its options may be, and which names it is known by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import (
        aliases as aliases,
        canvas_parts as canvas_parts,
        cascading as cascading,
        composition as composition,
        method_listing as method_listing,
        methods as methods,
    )
    from . import (
        corpus as corpus,
        memory as memory,
        names as names,
        prediction as prediction,
        verify as verify,
        yours as yours,
    )

__getattr__, __dir__ = lazily(__name__)
