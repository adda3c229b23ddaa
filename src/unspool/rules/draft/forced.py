"""What a constraint leaves no choice about: braces, quotes, keys and whatever else a grammar spells out by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.chance import Chance
from ...core.claim import SEED, Method, claims
from ...core.law import chosen
from ...core.tree import Tree
from ...core.warp.warp import Both, Prefix, Warp
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate
from ..constrain.constraint import Constrained
from .bigram_recycling import BigramRecycling
from .guide import Guide, Kids
from .merge import Merge
from .suffix import Suffix

if TYPE_CHECKING:
    from ..constrain.constraint import State


def _trials() -> Iterator[Method]:
    yield Speculate(Forced(), budget=2)
    yield Speculate(Merge(Forced(), Suffix(depth=2), BigramRecycling()), budget=2)


@claims(SEED, trials=lambda _: _trials(), systems=("fast-forward tokens (guidance), jump-forward",))
@dataclass(frozen=True)
class Forced(Draft):
    """Draft the tokens that the request's constraint forces to follow, in the spelling that it forces.

    They are drafted and not simply written: the target still scores them, so that what follows is computed from a text
    it has read, the law of every token is known, and a draft that goes on behind them costs the same forward. Without a
    constraint nothing is drafted.

    Claim: SEED under sample matching. Cost: a look at the constraint per node.
    """

    def begin(self, prefix: Prefix) -> Source:
        """A source that remembers nothing: the prefix holds the constraint's state."""
        return ForcedSource()


class ForcedSource(Source, Guide):
    """The forced tokens behind a text; as a guide, behind every path of a tree."""

    voices = (1.0,)

    def start(self, prefix: Prefix) -> State | None:
        return _state(prefix.warp, prefix.state)

    def below(self, place: State | None) -> tuple[int, Kids]:
        return 0, [(token, 1.0) for token in (() if place is None else place.forced()[:1])]

    def then(self, place: State | None, token: int) -> State | None:
        return None if place is None or not place.allows(token) else place.step(token)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        state = self.start(prefix)
        forced = () if state is None else state.forced()
        return Tree.chain([chosen(token) for token in forced[:budget]])


def _state(warp: Warp, state: Any) -> State | None:
    """The state of the constraint among these warps, None if there is none."""
    if isinstance(warp, Both):
        return _state(warp.first, state[0]) or _state(warp.second, state[1])
    return state if isinstance(warp, Constrained) else None
