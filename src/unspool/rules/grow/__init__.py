"""Which nodes enter a tree, and how far to draft: decisions under a node budget and a measured cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from ...core.cost import FREE as FREE, Cost as Cost
    from .best_first import Below as Below, Twig as Twig, best_first as best_first, planted as planted, worth as worth
    from .draft_length import Best as Best, ConfidentLength as ConfidentLength, Ema as Ema, FixedLength as FixedLength
    from .draft_length import Heuristic as Heuristic, Length as Length, Threshold as Threshold
    from .draft_length import best_length as best_length, speed_up as speed_up
    from .tree_shape import sequoia as sequoia
    from .tree_shape import TreeShape as TreeShape

__getattr__, __dir__ = lazily(__name__)
