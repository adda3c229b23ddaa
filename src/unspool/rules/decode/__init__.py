"""Ways to decode that are no drafting, unmasking or search by themselves; the three loops are reached from here too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from ...loops.denoise import Denoise as Denoise
    from ...loops.speculate import Speculate as Speculate
    from .anyorder import AnyOrder as AnyOrder
    from .autoregressive import plain as plain
    from .deliberate import Chunks as Chunks
    from .deliberate import Deliberate as Deliberate
    from .deliberate import Least as Least
    from .deliberate import Scattered as Scattered
    from .fragments import Fragments as Fragments
    from .insert import Insert as Insert
    from .judge import Judge as Judge
    from .refill import Given as Given
    from .slots import Slots as Slots
    from .steps import Steps as Steps
    from .template import Template as Template

__getattr__, __dir__ = lazily(
    __name__,
    {
        "anyorder": "AnyOrder",
        "deliberate": "Chunks Deliberate Least Scattered",
        "..loops.denoise": "Denoise",
        "fragments": "Fragments",
        "insert": "Insert",
        "judge": "Judge",
        "autoregressive": "plain",
        "refill": "Given",
        "slots": "Slots",
        "..loops.speculate": "Speculate",
        "steps": "Steps",
        "template": "Template",
    },
)
