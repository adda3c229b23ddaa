"""One model on several ranks: who leads, who follows, and what they do together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import ranks as ranks

__getattr__, __dir__ = lazily(__name__)
