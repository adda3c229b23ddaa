"""Two exits of one network that share their work: the later one goes on from the states of the earlier one.

Both have the same first layers. What enters the last layer of the earlier exit is noted with every token that it reads;
the later exit starts from there, for the same tokens of the same text, and computes the layers from that one on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor

from ...core.asks import Scores
from ..engine.contracts import ScoreRequest
from ..network.linear import EmbeddingAndHead
from ..network.llama import Llama
from .cached_model import CachedModel
from .forward_request import EagerExecutor, ForwardRequest
from .sequence import CachedSequence, CachedSession, DraftNode


class Feed:
    """What the next forward starts from: a state for each of its tokens."""

    states: Tensor


@dataclass(frozen=True)
class Continued(EmbeddingAndHead):
    """The states of a feed in place of embeddings."""

    feed: Feed | None = None

    def embed(self, tokens: Tensor) -> Tensor:
        assert self.feed is not None
        assert len(self.feed.states) == len(tokens), "a state for every token"
        return self.feed.states


class ContinuedExecutor(EagerExecutor):
    """Lays the states of all new tokens into the feed before it calls the network."""

    def __init__(self, network: Llama, feed: Feed, states: Callable[[ForwardRequest], Tensor]) -> None:
        super().__init__(network)
        self._feed, self._states = feed, states

    def forward(self, requests: list[ForwardRequest], wants: tuple[int, ...]) -> None:
        self._feed.states = torch.cat([self._states(request) for request in requests])
        super().forward(requests, wants)

    def prefill(self, requests: list[ForwardRequest]) -> None:
        self._feed.states = torch.cat([self._states(request) for request in requests])
        super().prefill(requests)


class EarlyExit(CachedModel):
    """The earlier exit: it notes the states that enter its last layer, and knows its sessions."""

    def __init__(self, network: Llama, prefix_cache: int = 0) -> None:
        super().__init__(network, prefix_cache)
        like = torch.empty(0, network.shape.dim, dtype=network.ends.dtype, device=network.ends.device)
        self.slots.keep_states((network.layers - 1,), like)
        self.sessions: WeakSet[CachedSession] = WeakSet()

    def open(self, text: Sequence[int], owner: str = "") -> CachedSession:
        session = super().open(text, owner)
        self.sessions.add(session)
        return session

    def closed(self, session: CachedSession) -> None:
        self.sessions.discard(session)
        super().closed(session)


class LateExit(CachedModel):
    """The later exit: the layers from the last one of the earlier exit on, over its states.

    Of a request that both serve, the texts are the same, and what the earlier exit has read is not read again. For a
    text that the earlier exit does not have, a session of it is opened.

    Cost: a forward of the layers behind the earlier exit and one more.
    """

    def __init__(self, early: EarlyExit, network: Llama, last: int, prefix_cache: int = 0) -> None:
        """`network` is the whole one, of which this exit has the layers below `last`."""
        assert isinstance(early.network, Llama)
        feed, ends = Feed(), network.ends
        continued = Continued(ends.table, None, ends.norm, ends.head, feed=feed)
        upper = network.part(range(early.network.layers - 1, last), continued)
        super().__init__(upper, prefix_cache, ContinuedExecutor(upper, feed, self._states))
        self.early = early
        self._below: WeakKeyDictionary[CachedSession, CachedSession] = WeakKeyDictionary()
        self._own: WeakSet[CachedSession] = WeakSet()  # sessions of the earlier exit that were opened here
        self._leaves: dict[int, CachedSession] = {}  # of the texts that are being read, the session that they are in

    def score_beside(self, asked: Sequence[ScoreRequest], parts: Sequence[tuple[ScoreRequest, int]]) -> list[Scores]:
        every = [*asked, *(ask for ask, _ in parts)]
        self._leaves = {}
        self.early.score([ScoreRequest(self._session(ask.session), ask.tree) for ask in every])
        return super().score_beside(asked, parts)

    def read(self, chunks: Sequence[tuple[object, int]]) -> None:
        self._leaves = {}
        for session, count in chunks:
            assert isinstance(session, CachedSession)
            below = self._session(session)
            missing = len(session.leaves[0].slots) + count - len(below.leaves[0].slots)
            if missing > 0:
                self.early.read([(below, missing)])
        super().read(chunks)  # type: ignore[arg-type]

    def closed(self, session: CachedSession) -> None:
        below = self._below.pop(session, None)
        if below is not None and below in self._own:
            below.close()
        super().closed(session)

    def _session(self, session: object) -> CachedSession:
        """The session of the earlier exit with the texts of this one; nobody else's."""
        assert isinstance(session, CachedSession)
        found = self._below.get(session)
        if found is None or not _same(found, session):
            if found is not None and found in self._own:
                found.close()
            taken = {id(other) for mine, other in self._below.items() if mine is not session}
            free = (own for own in self.early.sessions if id(own) not in taken and _same(own, session))
            found = next(free, None)
            if found is None:
                first = session.leaves[0]
                found = self.early.open(first.tokens, first.owner)
                self._own.add(found)
                if len(session.leaves) > 1:
                    found.leaves += [self.early.open(leaf.tokens, leaf.owner).leaves[0] for leaf in session.leaves[1:]]
            self._below[session] = found
        for leaf in session.leaves:
            self._leaves[id(leaf)] = found
        return found

    def _states(self, request: ForwardRequest) -> Tensor:
        """What enters the first layer here for the new tokens of a request: they are all read by the earlier exit."""
        leaf = request.leaf
        early = next(own for own in self._leaves[id(leaf)].leaves if own.tokens == leaf.tokens)
        slots = early.slots[len(leaf.slots) : len(leaf.slots) + len(request.owed)]
        paths: list[tuple[int, ...]] = []
        for token, above in request.added:
            before = _path(above) if isinstance(above, DraftNode) else () if above < 0 else paths[above]
            paths.append((*before, token))
            slots.append(list(early.descend(paths[-1]))[-1].slot)
        return self.early.slots.states(slots)


def _same(early: CachedSession, late: CachedSession) -> bool:
    pairs = zip(early.leaves, late.leaves, strict=False)
    return len(early.leaves) == len(late.leaves) and all(
        own.owner == leaf.owner and own.tokens == leaf.tokens for own, leaf in pairs
    )


def _path(node: CachedSequence | DraftNode) -> tuple[int, ...]:
    """The drafted tokens that lead to a node, itself included."""
    tokens: list[int] = []
    while isinstance(node, DraftNode):
        tokens.append(node.token)
        node = node.above
    return tuple(tokens[::-1])
