"""A draft model that never stands in the way: opened when it is first asked, silent where it has no room."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...core.asks import Draw, Drew, Scores
from ...core.canvas import Field
from ...core.errors import OutOfRoom
from ...core.law import NEVER, Law, chosen
from ...core.tree import NOTHING, ROOT, Tree
from ..engine.contracts import (
    Causal,
    FollowsTarget,
    Infill,
    LookRequest,
    ScoreRequest,
    Session,
    SupportsChunkedPrefill,
    SupportsDeviceDecoding,
    SupportsDeviceDrafting,
    drafting_of,
)


class BestEffortDraft:
    """A causal model that answers with empty laws once a text is longer than it can read or store.

    Whoever drafts with it ends the draft at an empty law, and the target goes on alone; so a request is neither refused
    nor cut for the sake of a draft model's context or cache. A request that never asks it costs nothing. It reads long
    texts in chunks if the inner model does.
    """

    context = None
    room = None
    device: SupportsDeviceDecoding | None = None  # drafts are verified by the target

    def __init__(self, model: Causal) -> None:
        self.model, self.vocab = model, model.vocab
        self.chunk = model.chunk if isinstance(model, SupportsChunkedPrefill) else 1
        self._nothing = Law(torch.full((model.vocab,), NEVER))

    def open(self, text: Sequence[int], owner: str = "") -> BestEffortSession:
        """A session that only remembers the text until it is asked."""
        return BestEffortSession(self.model, tuple(text), [list(text)], owner)

    def forget(self) -> None:
        self.model.forget()

    def owed(self, session: Session) -> int:
        assert isinstance(session, BestEffortSession)
        return (
            0
            if session.silent or not isinstance(self.model, SupportsChunkedPrefill)
            else self.model.owed(session.opened())
        )

    def read(self, chunks: Sequence[tuple[Session, int]]) -> None:
        """Read so much of each, or say nothing from now on of those that there is no room for."""
        assert isinstance(self.model, SupportsChunkedPrefill)  # nobody owes anything to another
        quiet = [(session, count) for session, count in chunks if isinstance(session, BestEffortSession)]
        try:
            self.model.read([(session.opened(), count) for session, count in quiet])
        except OutOfRoom:
            if len(quiet) == 1:
                quiet[0][0].hush()
            else:
                for each in quiet:
                    self.read([each])

    @property
    def drafting(self) -> SupportsDeviceDrafting | None:
        return None if drafting_of(self.model) is None else self

    def draw(self, asked: Sequence[ScoreRequest], draws: Sequence[Draw]) -> Sequence[Drew | None] | None:
        drafting = drafting_of(self.model)
        if drafting is None or any(_quiet(ask).silent for ask in asked):
            return None
        try:
            return drafting.draw([ScoreRequest(_quiet(ask).opened(), ask.tree) for ask in asked], draws)
        except OutOfRoom:
            return None

    def score(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        """Answer all these in one forward, or each alone if there is no room for all."""
        asks = [ScoreRequest(_quiet(ask).opened(), ask.tree, ask.want) for ask in asked if not _quiet(ask).silent]
        try:
            answers = iter(self.model.score(asks) if asks else [])
        except OutOfRoom:
            if len(asked) > 1:
                return [self.score([ask])[0] for ask in asked]
            _quiet(asked[0]).hush()
            answers = iter([])
        return [self._silence(ask) if _quiet(ask).silent else next(answers) for ask in asked]

    def _silence(self, ask: ScoreRequest) -> Scores:
        return Scores([self._nothing] * len(ask.tree), [self._nothing] * len(_quiet(ask).leaves))


class BestEffortFollower(BestEffortDraft):
    """A quiet model that reads the target's hidden states, as its inner model does."""

    def follow(self, session: Session, target: Session) -> None:
        assert isinstance(session, BestEffortSession)
        session.target = target


class BestEffortInfill(BestEffortDraft):
    """A quiet model that also fills holes, as its inner model does."""

    def look(self, asked: Sequence[LookRequest]) -> list[Field]:
        assert isinstance(self.model, Infill)
        heard = [ask for ask in asked if not self._is_silent(ask)]
        looks = [ask if ask.session is None else LookRequest(_quiet(ask).opened(), ask.look) for ask in heard]
        try:
            answers = iter(self.model.look(looks) if looks else [])
        except OutOfRoom:
            if len(heard) > 1:
                return [self.look([ask])[0] for ask in asked]
            if heard[0].session is not None:
                _quiet(heard[0]).hush()
            return [self._blank(ask) for ask in asked]
        return [self._blank(ask) if self._is_silent(ask) else next(answers) for ask in asked]

    def _is_silent(self, ask: LookRequest) -> bool:
        context = self.model.context
        long = context is not None and len(ask.look.canvas) > context
        return long or (ask.session is not None and _quiet(ask).silent)

    def _blank(self, ask: LookRequest) -> Field:
        return Field(dict.fromkeys(ask.look.places, self._nothing))


def quiet(model: Causal) -> BestEffortDraft:
    """A model that never stands in the way, and fills holes or follows the target if the inner one does."""
    if isinstance(model, FollowsTarget):
        return BestEffortFollower(model)
    return BestEffortInfill(model) if isinstance(model, Infill) else BestEffortDraft(model)


class BestEffortSession:
    """The texts of one request, and the inner model's session once there is one."""

    def __init__(self, model: Causal, prompt: tuple[int, ...], leaves: list[list[int]], owner: str) -> None:
        self._model, self._prompt, self.leaves, self._owner = model, prompt, leaves, owner
        self._inner: Session | None = None
        self.silent = False
        self.target: Session | None = None  # where the inner model follows it

    def opened(self) -> Session:
        """The inner session, at these texts."""
        if self._inner is None:
            forked = len(self.leaves) > 1
            self._inner = self._model.open(self._prompt if forked else self.leaves[0], self._owner)
            if forked:
                tree, ends = self._below_prompt()
                self._inner.keep(tree, ends, [None] * len(ends))
            if self.target is not None:
                assert isinstance(self._model, FollowsTarget)
                self._model.follow(self._inner, self.target)
        return self._inner

    def _below_prompt(self) -> tuple[Tree, list[int]]:
        tree, ends = NOTHING, []
        for leaf in self.leaves:
            end = ROOT
            for token in leaf[len(self._prompt) :]:
                tree, end = tree.grow(chosen(token), end)
            ends.append(end)
        return tree, ends

    def hush(self) -> None:
        """Give back what is stored, and say nothing from now on."""
        self.close()
        self.silent = True

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        ends = [() if token is None else (token,) for token in extra]
        new = [(tree.leaf(n), (*tree.tokens(tree.path(n)), *end)) for n, end in zip(nodes, ends, strict=True)]
        if len(new) == len(self.leaves) == 1:
            self.leaves[0] += new[0][1]  # in place: a long text is not copied in every round
        else:
            self.leaves = [[*self.leaves[r], *tokens] for r, tokens in new]
        if self._inner is not None:
            self._inner.keep(tree, nodes, extra)

    def fork(self) -> BestEffortSession:
        copy = BestEffortSession(self._model, self._prompt, [list(leaf) for leaf in self.leaves], self._owner)
        copy._inner, copy.silent = self._inner and self._inner.fork(), self.silent
        return copy

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None


def _quiet(ask: ScoreRequest | LookRequest) -> BestEffortSession:
    assert isinstance(ask.session, BestEffortSession)
    return ask.session
