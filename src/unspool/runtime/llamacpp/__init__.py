"""Models of llama.cpp behind the same contract: its sequences are branches of draft trees, its cells are KV slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import open_gguf as open_gguf

__getattr__, __dir__ = lazily(__name__)
