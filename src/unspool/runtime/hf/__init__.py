"""Models of the transformers library behind the same contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import load as load

__getattr__, __dir__ = lazily(__name__)
