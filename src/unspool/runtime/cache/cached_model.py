"""A causal model with a KV cache: texts, drafts and forks as bookkeeping over a pool of slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor

from ...core.asks import Scores
from ...core.errors import BadRequest, OutOfRoom
from ...core.tree import Tree
from .. import network as networks
from ..engine.contracts import (
    PlacedModel,
    ScoreRequest,
    Session,
    SupportsDeviceDecoding,
    SupportsDeviceDrafting,
    guesses_of,
    layers_of,
    tops_of,
)
from ..network.network import Network
from .forward_request import (
    MOST_TOLD,
    EagerExecutor,
    Executor,
    ForwardRequest,
    first_rows,
    grown,
    resumes_at,
    scores_of,
)
from .sequence import CachedSequence, CachedSession, PrefixIndex, unlink

if TYPE_CHECKING:
    from ..network.lookahead_heads import MedusaHeads

T = TypeVar("T")


class CachedModel:
    """A causal model: a network, its KV pool, the sessions that share it, and an executor that runs its forwards.

    A new text starts from the longest computed prefix that another open text of its owner, or one among the last
    `prefix_cache` closed ones, has in common with it. Closed texts give way as soon as their slots are needed. `device`
    and `drafting` are what can be decided without a look of the host, where the executor runs on a device that does so.
    """

    load_heads: Callable[[], MedusaHeads] | None = None  # brings heads when they are first wanted
    guesses = False  # whether those take a small part of a forward

    def __init__(self, network: Network, prefix_cache: int = 0, executor: Executor | None = None) -> None:
        self.network, self.slots = network, network.slots
        self.vocab, self.context, self.room = network.vocab, network.context, network.slots.room
        self.executor: Executor = EagerExecutor(network) if executor is None else executor
        self.chunk = self.executor.chunk
        self.device: SupportsDeviceDecoding | None = None
        self.drafting: SupportsDeviceDrafting | None = None
        self.prefix_cache = prefix_cache
        self._finished: deque[CachedSequence] = deque()  # closed texts whose slots are still there
        self._prefixes = PrefixIndex()
        self._unnoted: list[CachedSequence] = []  # texts that were closed since one was opened last
        self._tops: dict[int, list[tuple[int, float]]] = {}  # by slot, the likeliest tokens after it, where once told

    @cached_property
    def heads(self) -> MedusaHeads | None:
        """The model's look-ahead (Medusa) heads, if it has any; loaded when first asked for."""
        return None if self.load_heads is None else self.load_heads()

    @property
    def place(self) -> torch.device:
        """Where its network computes; AttributeError if that does not say, so that it is no `PlacedModel`."""
        return cast("PlacedModel", self.network).place

    def open(self, text: Sequence[int], owner: str = "") -> CachedSession:
        tokens = list(text)
        if not tokens:
            raise BadRequest("a text needs at least one token to go on from")
        for leaf in self._unnoted:
            self._prefixes.note(leaf)
        self._unnoted = []
        # The last token is computed anew, because its law is what the text is opened for.
        shared = self._prefixes.longest(tokens, len(tokens) - 1, owner)
        shared = shared[: self.slots.resumable(shared)]
        self.slots.share(shared)
        return CachedSession(self, [CachedSequence(tokens, shared, owner=owner)])

    def forget(self) -> None:
        while self._finished:
            self.release(self._finished.popleft())

    # ---- prefill

    def owed(self, session: Session) -> int:
        """How many tokens of a session's text must still be read before it can be answered; 0 if there are several."""
        assert isinstance(session, CachedSession)
        leaf, *others = session.leaves
        return 0 if others else len(leaf.tokens) - len(leaf.slots)

    def holds(self, session: Session) -> int:
        """For how many tokens a session has slots; what several of its texts share counts once."""
        assert isinstance(session, CachedSession)
        slots = {slot for leaf in session.leaves for slot in leaf.slots}
        return len(slots.union(node.slot for leaf in session.leaves for node in leaf.drafts))

    def states(self, session: Session | None, number: int, text: Sequence[int], first: int) -> Tensor | None:
        """The noted hidden states of all tokens of a text from `first` on but the last, if this leaf has read them."""
        leaves = session.leaves if isinstance(session, CachedSession) else []
        leaf, end = leaves[number] if number < len(leaves) else None, len(text) - 1
        if leaf is None or len(leaf.slots) < end or leaf.tokens != list(text):
            return None
        return self.slots.states(leaf.slots[first:end])

    def read(self, chunks: Sequence[tuple[Session, int]]) -> None:
        """Read so many of them now, from the first on, and answer nothing; nothing is changed if it cannot be done."""
        requests: list[ForwardRequest] = []
        for session, count in chunks:
            assert isinstance(session, CachedSession)
            (leaf,) = session.leaves
            self._resume(leaf, leaf.slots[-1:])
            requests.append(ForwardRequest(leaf, leaf.owed[:count]))
        self._prefill(requests)

    def read_ahead(self, leaves: Sequence[CachedSequence]) -> dict[int, int]:
        """Read all but the last token of every text; how many tokens that were, by the number of the text."""
        requests: dict[int, ForwardRequest] = {}
        for number, leaf in enumerate(leaves):
            owed = len(leaf.tokens) - len(leaf.slots)
            if owed == 0:  # the last one is computed anew, to go on from it
                self.slots.drop([leaf.slots.pop()])
            self._resume(leaf, leaf.slots[-1:])
            if len(leaf.tokens) - len(leaf.slots) > 1:
                requests[number] = ForwardRequest(leaf, leaf.owed[:-1])
        with self.slots.holding([leaf.slots[-1] for leaf in leaves if leaf.slots]):
            self._prefill(list(requests.values()))
        return {number: len(request) for number, request in requests.items()}

    def _prefill(self, requests: list[ForwardRequest]) -> None:
        if not requests:
            return
        self.refuse_overlong(requests)
        self.holding(requests, lambda: self.executor.prefill(requests))
        for request in requests:
            leaf = request.leaf
            leaf.slots += request.slots
            leaf.law, leaf.hidden = None, {}  # those of a token in the middle
            self._prefixes.note(leaf)

    # ---- scores

    def score(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        """Answer all these with one forward; nothing is changed if it cannot be done."""
        return self.score_beside(asked, ())

    def score_beside(self, asked: Sequence[ScoreRequest], parts: Sequence[tuple[ScoreRequest, int]]) -> list[Scores]:
        """The same, with some rows of larger asks in the same forward: what they compute is found by the next."""
        groups = self.requests(asked)
        requests = [request for group in groups for request in group]
        for ask, count in parts:
            (group,) = self.requests([ask])
            requests += first_rows(group, count)
        self.refuse_overlong(requests)
        busy = [request for request in requests if len(request)]
        if busy:
            wants = layers_of(frozenset(ask.want for ask in (*asked, *(ask for ask, _ in parts))))
            self.holding(busy, lambda: self.executor.forward(busy, wants))
            self.note(busy)
        for leaf in (request.leaf for request in requests if request.leaf.owed):
            leaf.law, leaf.hidden = None, {}  # those of a token in the middle
        return [self._answered(ask, group) for ask, group in zip(asked, groups, strict=True)]

    def rows(self, ask: ScoreRequest) -> int:
        """How many rows are still to be computed before this can be answered."""
        return sum(map(len, self.requests([ask])[0]))

    def _answered(self, ask: ScoreRequest, requests: list[ForwardRequest]) -> Scores:
        """The answer to a request; with what look-ahead heads guess, if that was asked for."""
        count = guesses_of(ask.want)
        if not count or self.heads is None:
            return scores_of(ask, requests)
        return scores_of(ask, requests, networks.head_guesses.looking(self.heads, requests, count))

    def requests(self, asked: Sequence[ScoreRequest]) -> list[list[ForwardRequest]]:
        """What a forward has to add to every leaf of every session that is asked about."""
        requests: list[list[ForwardRequest]] = []
        for ask in asked:
            session = ask.session
            assert isinstance(session, CachedSession)
            layers = layers_of(frozenset((ask.want,)))
            for leaf in session.leaves:
                self._forget_without(leaf, layers)
            requests.append([self._grown(leaf, r, ask.tree) for r, leaf in enumerate(session.leaves)])
            for request in requests[-1]:
                request.best = tops_of(ask.want)
                request.tops = self._known(request) if request.best else {}
        return requests

    def _grown(self, leaf: CachedSequence, number: int, tree: Tree) -> ForwardRequest:
        request = grown(leaf, number, tree)
        return grown(leaf, number, tree) if self._resume(leaf, resumes_at(request)) else request

    def _resume(self, leaf: CachedSequence, slots: Sequence[int]) -> bool:
        """Cut a text back to its last resumable slot, if one of these is none; whether it was cut."""
        if all(map(self.slots.resumable, ([slot] for slot in slots))):
            return False
        self._drop_drafts(leaf)
        size = self.slots.resumable(leaf.slots)
        if size < len(leaf.slots):
            self.slots.drop(leaf.slots[size:])
            del leaf.slots[size:]
            leaf.law, leaf.hidden = None, {}
            self.executor.forget(leaf, size)
        return True

    def _known(self, request: ForwardRequest) -> dict[int, list[tuple[int, float]]]:
        """The top tokens that earlier forwards found at cached places: a cached prompt tells what a fresh one does."""
        slots = request.leaf.slots
        last = range(max(0, len(slots) - MOST_TOLD), len(slots))
        return {i + 1: self._tops[slots[i]][: request.best] for i in last if slots[i] in self._tops}

    def holding(self, requests: list[ForwardRequest], forward: Callable[[], T]) -> T:
        """Run a forward with slots taken for all requests; they are given back if it fails."""
        self._take(requests)
        try:
            return forward()
        except BaseException:
            for request in requests:
                self.slots.drop(request.slots)
            raise

    def note(self, requests: list[ForwardRequest]) -> None:
        """Index the prompts that were just read, and keep the top tokens that were found at their places."""
        for request in requests:
            for place, best in request.tops.items():
                self._tops[request.leaf.slots[place - 1]] = best
            if len(request.owed) > 1:
                self._prefixes.note(request.leaf)

    def refuse_overlong(self, requests: list[ForwardRequest]) -> None:
        """OutOfRoom if a text is longer than the network reads."""
        if self.context is None:
            return
        longest = max((len(r.leaf.tokens) + (1 if r.added else 0) for r in requests), default=0)
        if longest > self.context:
            raise OutOfRoom(f"a text of {longest} tokens is longer than the {self.context} that this model reads")

    # ---- slots

    def _take(self, requests: list[ForwardRequest]) -> None:
        try:
            for request in requests:
                leaf = request.leaf
                last = leaf.drafts[-1].slot if leaf.drafts else leaf.slots[-1] if leaf.slots else None
                request.slots = self.take(len(request), last)
        except OutOfRoom:
            for request in requests:
                self.slots.drop(request.slots)
                request.slots = []
            raise

    def take(self, count: int, after: int | None = None) -> list[int]:
        """So many slots, behind `after` if that can be; closed texts give theirs up for them, the oldest first."""
        while True:
            try:
                taken = self.slots.take(count, after)
            except OutOfRoom:
                if not self._finished:
                    raise
                self.release(self._finished.popleft())
                continue
            for slot in taken if self._tops else ():
                self._tops.pop(slot, None)  # what it held is gone
            return taken

    def _forget_without(self, leaf: CachedSequence, layers: Sequence[int]) -> None:
        """Drop drafts, and the last token, if they were computed without hidden states that are wanted now."""
        if any(layer not in node.hidden for node in leaf.drafts for layer in layers):
            self._drop_drafts(leaf)
        if leaf.law is not None and any(layer not in leaf.hidden for layer in layers):
            self._drop_drafts(leaf)  # their keys stand behind the one that goes
            self.slots.drop([leaf.slots.pop()])
            leaf.law = None

    def _drop_drafts(self, leaf: CachedSequence) -> None:
        self.slots.drop([node.slot for node in leaf.drafts])
        unlink(leaf)
        leaf.drafts, leaf.kids = [], {}

    def closed(self, session: CachedSession) -> None:
        """Forget a session; its first text stays in the prefix cache."""
        for leaf in session.leaves:
            self._drop_drafts(leaf)
            self.executor.forget(leaf)
        first, *others = session.leaves
        for leaf in others:
            self.release(leaf)
        self._finished.append(first)
        while len(self._finished) > self.prefix_cache:
            self.release(self._finished.popleft())
        self._unnoted = list(self._finished)

    def release(self, leaf: CachedSequence) -> None:
        """Free the slots of a text; the prefix index, which may still name it, then finds it empty."""
        self.slots.drop(leaf.slots)
        leaf.slots = []
