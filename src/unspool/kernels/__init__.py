"""The native runtime's kernels for CUDA, in Triton: one idea per file, each beside a reference in PyTorch.

Its modules are imported when something on a GPU asks for them: they need Triton. Every launch can be captured in a
CUDA graph: grids depend on the shapes of a bucket alone, what a row really holds is read on the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import follow as follow  # which rules name, also where there is no Triton

__getattr__, __dir__ = lazily(__name__)
