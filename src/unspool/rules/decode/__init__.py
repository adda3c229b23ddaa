"""Ways to decode that are no drafting, unmasking or search by themselves; the three loops are reached from here too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from ...loops.denoise import Denoise as Denoise
    from ...loops.speculate import Speculate as Speculate
    from .anyorder import Alike as Alike, AnyOrder as AnyOrder, Copied as Copied, HoleDrafter as HoleDrafter
    from .anyorder import HoleOrder as HoleOrder, left as left, mixed as mixed
    from .autoregressive import plain as plain
    from .capped_jacobi import CappedJacobi as CappedJacobi, Start as Start, from_bigrams as from_bigrams
    from .capped_jacobi import last_chunk as last_chunk
    from .deliberate import Chunks as Chunks, Deliberate as Deliberate, Doubt as Doubt, Least as Least
    from .deliberate import Scattered as Scattered
    from .early_answer import EarlyAnswer as EarlyAnswer
    from .fragments import Fragments as Fragments
    from .insert import Insert as Insert
    from .judge import Judge as Judge
    from .refill import GivenText as GivenText
    from .slots import Slots as Slots
    from .steps import Steps as Steps
    from .template import Template as Template

__getattr__, __dir__ = lazily(__name__)
