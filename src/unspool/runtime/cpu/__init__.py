"""The CPU runtime: matrices kept in the blocks of their file, and C kernels that multiply them as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import (
        compiled as compiled,
        kernel_outputs as kernel_outputs,
        packed as packed,
        packed_heads as packed_heads,
        packed_llama as packed_llama,
        rounded_blocks as rounded_blocks,
    )

__getattr__, __dir__ = lazily(__name__)
