"""The GPU runtime: CUDA graphs, block tables, staging buffers, fused networks, drafting and verifying on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import batch_invariant_fused as batch_invariant_fused
    from . import fused as fused
    from . import fusible as fusible
    from . import graph_model as graph_model

__getattr__, __dir__ = lazily(__name__)
