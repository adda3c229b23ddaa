"""unspool inside other tools: transformers' `generate`, lm-evaluation-harness, and the `llm` command line.

Names are loaded when they are first used, as other tools look for their plugins whenever they start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .generation import Generate as Generate
    from .generation import custom_generate as custom_generate

__all__ = ["Generate", "custom_generate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'unspool.apps.integrations' has no attribute {name!r}")
    from . import generation

    return getattr(generation, name)
