"""Which nodes enter a tree, and how far to draft: decisions under a node budget and a measured cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from ...core.cost import FREE as FREE
    from ...core.cost import Cost as Cost
    from .best_first import Below as Below
    from .best_first import Twig as Twig
    from .best_first import best_first as best_first
    from .best_first import planted as planted
    from .best_first import worth as worth
    from .draft_length import Best as Best
    from .draft_length import ConfidentLength as ConfidentLength
    from .draft_length import Ema as Ema
    from .draft_length import FixedLength as FixedLength
    from .draft_length import Heuristic as Heuristic
    from .draft_length import Length as Length
    from .draft_length import Threshold as Threshold
    from .draft_length import best_length as best_length
    from .draft_length import speed_up as speed_up
    from .sequoia import sequoia as sequoia
    from .tree_shape import TreeShape as TreeShape

__getattr__, __dir__ = lazily(__name__)
