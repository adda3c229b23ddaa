"""Trained drafters: networks that read the target's hidden states, as draft models that any rule can ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import drafter_check as drafter_check, drafter_model as drafter_model

__getattr__, __dir__ = lazily(__name__)
