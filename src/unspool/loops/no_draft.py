"""No draft at all: speculation with the empty tree is plain decoding."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.chance import Chance
from ..core.tree import NOTHING
from ..core.warp.warp import Prefix
from .drafter import Memoryless, Proposing


@dataclass(frozen=True)
class Nothing(Memoryless):
    """Proposes the empty tree."""

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        return NOTHING
