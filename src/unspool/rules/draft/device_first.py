"""A drafter that drafts on the host only where the model does not draft for itself."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Price
from ...core.chance import Chance
from ...core.cost import Cost
from ...core.tree import NOTHING
from ...core.warp.warp import Prefix
from ...core.warp.warp_plan import plan_of
from ...loops.drafter import Draft, Proposing, Source, begun
from .composite import CompositeDraft, CompositeSource

LONG = 128  # tokens after which it asks again


@dataclass(frozen=True)
class DeviceFirst(CompositeDraft):
    """What another drafter drafts, unless the model runs where it drafts for itself and knows all warps.

    There a forward of many texts takes about a millisecond, which is less than the host needs to draft for them one
    after the other. So the source rests, and the device drafts or steps, whichever is faster by its own clock; the host
    sees to the masks meanwhile. Claim: that of the drafter, under sample matching.
    """

    draft: Draft

    @property
    def parts(self) -> tuple[Draft, ...]:
        return (self.draft,)

    def holding(self, parts: tuple[Draft, ...]) -> Draft:
        return DeviceFirst(*parts)

    def begin(self, prefix: Prefix) -> Source:
        return _Leaving(begun(self.draft, prefix))


class _Leaving(CompositeSource):
    """The source of one request, how long it rests, and how many tokens the model may draft for itself till then."""

    def __init__(self, source: Source) -> None:
        super().__init__((source,))
        self._until = self._nodes = 0

    @property
    def ahead(self) -> int:
        return self._nodes or super().ahead

    def rest(self, prefix: Prefix) -> int:
        return max(self._until - len(prefix), super().rest(prefix))

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        cost: Cost = yield Price()
        if cost.speculates and plan_of(prefix.warp) is not None:
            self._nodes, self._until = budget, len(prefix) + LONG
            return NOTHING
        self._nodes = 0
        return (yield from self.sources[0].propose(prefix, budget, chance))
