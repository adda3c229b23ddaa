"""Names to weights: the catalog of models, the readers of model files, their tokens and their shapes.

Modules are imported when they are used, so that looking at the catalog does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import (
        adapter as adapter,
        address as address,
        coded as coded,
        codes as codes,
        delta as delta,
        download as download,
        fetch as fetch,
        fingerprint as fingerprint,
    )
    from . import folder as folder, hub as hub, rounding as rounding, weights as weights

__getattr__, __dir__ = lazily(__name__)
