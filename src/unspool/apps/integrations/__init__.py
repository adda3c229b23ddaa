"""unspool inside other tools: transformers' `generate`, lm-evaluation-harness, and the `llm` command line.

Names are loaded when they are first used, as other tools look for their plugins whenever they start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from .generation import Generate as Generate, custom_generate as custom_generate

__getattr__, __dir__ = lazily(__name__)
__all__ = ["Generate", "custom_generate"]
