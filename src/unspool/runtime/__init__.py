"""Everything that owns tensors: sessions and their contracts, models, caches, and the engine that batches them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import cpu as cpu, cuda as cuda, diffusion as diffusion, drafter as drafter, engine as engine, hf as hf
    from . import llamacpp as llamacpp
    from . import network as network, parallel as parallel

__getattr__, __dir__ = lazily(__name__)
