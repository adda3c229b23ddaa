"""Models that fill holes: bidirectional ones, block diffusion on a causal cache, and that on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import block_diffusion as block_diffusion, full_diffusion as full_diffusion, graph_denoiser as graph_denoiser

__getattr__, __dir__ = lazily(__name__)
