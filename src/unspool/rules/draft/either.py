"""Several drafters as one: the first that has something to say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...core.chance import Chance
from ...core.claim import SEED, Method, claims
from ...core.errors import BadRequest
from ...core.tree import NOTHING
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source, check_drafter
from ...loops.speculate import Speculate
from .chain import Chain
from .composite import CompositeDraft, CompositeSource, proposed
from .lookup import Lookup
from .recycle import Recycle
from .suffix import Suffix


def _trials() -> Iterator[Method]:
    yield Speculate(Either(Suffix(depth=2, least=2), Recycle()), budget=2)
    yield Speculate(Either(Lookup(2, 2, 2), Lookup(1, 1, 1)))
    yield Speculate(Either(Lookup(2, 2, 2), Chain(1)))


@claims(SEED, trials=lambda _: _trials(), systems=("lookup-first routers",))
@dataclass(frozen=True)
class Either(CompositeDraft):
    """The tree of the first drafter that proposes anything.

    The laws stay as they were drawn, and which drafter is asked depends on what the ones before it proposed, never on a
    token that is used; so a joined draft is exact under whatever verifier each of its parts is.

    Claim: SEED under sample matching. Cost: that of the drafters that are asked.
    """

    drafts: tuple[Draft, ...]

    def __init__(self, *drafts: Draft) -> None:
        if not drafts:
            raise BadRequest("either needs at least one drafter to ask, as in Either(Lookup(3, 2, 5), Chain(4))")
        for draft in drafts:
            check_drafter("either:drafts", draft)
        object.__setattr__(self, "drafts", drafts)

    @property
    def parts(self) -> tuple[Draft, ...]:
        return self.drafts

    def holding(self, parts: tuple[Draft, ...]) -> Draft:
        return Either(*parts)

    def begin(self, prefix: Prefix) -> Source:
        return _First(self.sources(prefix))


class _First(CompositeSource):
    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        for source in self.sources:
            tree = yield from proposed(source, prefix, budget, chance)
            if len(tree):
                return tree
        return NOTHING
