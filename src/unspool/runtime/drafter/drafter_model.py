"""A trained drafter as a draft model: any rule that asks one can ask it, under any verifier.

It answers `Score` as every causal model does: the law after a text and after every node of a tree. What it reads are
hidden states that the target's forwards have left in their slots, so that batches, trees, forks and shared prefixes
need nothing of their own. Before the target has read a text there is nothing to go on, and all laws are empty, which
ends a draft: the first round of a request is the target's alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ...core.asks import Scores
from ...core.errors import BadScores
from ...core.law import NEVER, Law
from ...core.tree import Tree
from ...models.drafters.description import DrafterFile, Join
from ..engine.contracts import NotesStates, ScoreRequest, Session
from ..network.attention import without_plans
from ..network.linear import EmbeddingAndHead
from .block_drafter import BlockDrafter
from .cell_drafter import CellDrafter
from .cross_drafter import CrossDrafter
from .drafter_network import DrafterNetwork
from .expert_drafter import ExpertDrafter
from .feature_drafter import FeatureDrafter
from .guess import DraftedText, Guess, Step, Unread
from .head_drafters import MedusaDrafter, MLPSpeculator
from .lattice_drafter import LatticeDrafter
from .trigram_drafter import TrigramDrafter

NETWORKS: Mapping[Join, type[DrafterNetwork]] = {
    "attend": FeatureDrafter,
    "project": FeatureDrafter,
    "context": BlockDrafter,
    "add": FeatureDrafter,
    "cross": CrossDrafter,
    "trigram": TrigramDrafter,
    "cells": CellDrafter,
    "heads": MedusaDrafter,
    "recurrent": MLPSpeculator,
}


def network_of(file: DrafterFile, ends: EmbeddingAndHead, room: int) -> DrafterNetwork:
    """The network that a drafter's description asks for."""
    own = ExpertDrafter if file.spec.experts else LatticeDrafter if file.spec.lattice else NETWORKS[file.spec.join]
    return own(file, ends, room)


class TrainedDrafter:
    """A drafter network beside its target, which notes the hidden states that it reads."""

    room = None
    context = None

    def __init__(self, network: DrafterNetwork, target: NotesStates) -> None:
        self.network, self.target, self.vocab = network, target, network.vocab
        self._nothing = Law(torch.full((self.vocab,), NEVER))

    def open(self, text: Sequence[int], owner: str = "") -> DrafterSession:
        """A session that knows nothing before it follows the target's."""
        return DrafterSession(self.network, [DraftedText(list(text))])

    def follow(self, session: Session, target: Session) -> None:
        assert isinstance(session, DrafterSession)
        session.target = target

    def forget(self) -> None:
        """Nothing is kept of closed sessions."""

    def alone(self) -> TrainedDrafter:
        """The drafter beside a target that has read everything, with states of zeros: only to be timed."""
        return TrainedDrafter(self.network, ZeroStates(self.network))

    def score(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        """The laws after texts and trees: new tokens of texts in one forward, and one for every level of the trees."""
        with without_plans():
            return self._scored(asked)

    def _scored(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        sessions = [_session(ask) for ask in asked]
        rows = self._read(sessions)
        found: list[dict[int, Guess]] = []
        for ask, session in zip(asked, sessions, strict=True):
            ends = {~r: text.end for r, text in enumerate(session.texts) if text.end is not None}
            found.append(self._known(ask.tree, ends))
        while steps := self._missing(asked, sessions, found):
            slots = self.network.slots.take(self.network.slots_of(len(steps)), _last_slot(steps[-1].text))
            for step, guess in zip(steps, self.network.grow(steps, slots), strict=True):
                step.under.kids[step.token] = guess
            rows += len(slots)
            found = [self._known(ask.tree, known) for ask, known in zip(asked, found, strict=True)]
        self._state_laws([guess for known in found for guess in known.values()])
        return [self._scores(ask, known, rows) for ask, known in zip(asked, found, strict=True)]

    def _read(self, sessions: Sequence[DrafterSession]) -> int:
        """Read what is new in these texts, as far as the target has; how many tokens that were."""
        unread: list[Unread] = []
        caches, slots = self.network.caches, self.network.slots
        try:
            for session in sessions:
                for number, text in enumerate(session.texts):
                    if text.end is None and (states := self._states(session, number, text)) is not None:
                        text.slots += slots.take(len(states), text.slots[-1] if text.slots else None) if caches else []
                        unread.append(Unread(text, states))
            ends = self.network.read(unread) if unread else []
        except BaseException:
            for text, states in unread if caches else ():
                slots.drop(text.slots[-len(states) :])
                del text.slots[-len(states) :]
            raise
        for (text, _), end in zip(unread, ends, strict=True):
            text.end = end
        return sum(len(states) for _, states in unread)

    def _states(self, session: DrafterSession, number: int, text: DraftedText) -> Tensor | None:
        last = len(text.tokens) - 2  # the last pair is of this token's state and the token behind it
        if last < 0:
            return None
        if len(text.slots) > last:  # a fork has read it, and is not told what came out
            self.network.slots.drop([text.slots.pop()])
        first = len(text.slots) if self.network.caches else last
        return self.target.states(session.target, number, text.tokens, first)

    @staticmethod
    def _known(tree: Tree, known: Mapping[int, Guess]) -> dict[int, Guess]:
        """The guesses after leaves and nodes, as far as they have been made."""
        found = dict(known)
        for node, parent in enumerate(tree.parent):
            above = found.get(parent)
            if node not in found and above is not None and tree.drawn[node].token in above.kids:
                found[node] = above.kids[tree.drawn[node].token]
        return found

    def _missing(
        self, asked: Sequence[ScoreRequest], sessions: Sequence[DrafterSession], found: Sequence[Mapping[int, Guess]]
    ) -> list[Step]:
        """The tokens whose guesses can be made now: those above are known. Equal siblings are one."""
        steps: dict[tuple[int, int], Step] = {}
        for ask, session, known in zip(asked, sessions, found, strict=True):
            for node, parent in enumerate(ask.tree.parent):
                above = known.get(parent)
                if node in known or above is None:
                    continue
                token = ask.tree.drawn[node].token
                if len(above.ahead) and 0 <= token < self.vocab:  # a hole is no token
                    steps.setdefault((id(above), token), Step(session.texts[ask.tree.leaf(node)], above, token))
        return list(steps.values())

    def _state_laws(self, guesses: Sequence[Guess]) -> None:
        """Give every guess its law; one product for all that have none."""
        new = list({id(guess): guess for guess in guesses if guess.law is None and len(guess.ahead)}.values())
        if not new:
            return
        scores = self.network.scores(new)
        if bool(scores.amax(1).isnan().any()):
            raise BadScores(
                f"the drafter {self.network.file.source} returned NaN. Its weights or its precision are broken: try "
                "dtype fp32, or write without --draft."
            )
        for number, guess in enumerate(new):
            guess.law = Law(scores[number])

    def _scores(self, ask: ScoreRequest, known: Mapping[int, Guess], rows: int) -> Scores:
        def law(node: int) -> Law:
            guess = known.get(node)
            return self._nothing if guess is None or guess.law is None else guess.law

        leaves = range(len(_session(ask).texts))
        return Scores([law(node) for node in range(len(ask.tree))], [law(~r) for r in leaves], rows=rows)


def _last_slot(text: DraftedText) -> int | None:
    """The slot behind which a text's next ones stand best: they are found without a search, and are neighbours."""
    return text.drafts[-1] if text.drafts else text.slots[-1] if text.slots else None


class ZeroStates:
    """Hidden states of a target that is not there."""

    def __init__(self, network: DrafterNetwork) -> None:
        self._like, self._width = network.ends.embedding, network.spec.wide * len(network.spec.states)

    def states(self, session: Session | None, number: int, text: Sequence[int], first: int) -> Tensor:
        return self._like.new_zeros(len(text) - 1 - first, self._width)


class DrafterSession:
    """The texts of one request. What was drafted is forgotten when a text goes on: the target's states replace it."""

    def __init__(self, network: DrafterNetwork, texts: list[DraftedText], target: Session | None = None) -> None:
        self._network, self.texts, self.target = network, texts, target

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        ends = [() if token is None else (token,) for token in extra]
        new = [(self.texts[tree.leaf(n)], (*tree.tokens(tree.path(n)), *e)) for n, e in zip(nodes, ends, strict=True)]
        if len(new) == len(self.texts) == 1:
            if new[0][1]:
                self._forget(self.texts[0])
                self.texts[0].tokens += new[0][1]
            return
        kept = [DraftedText([*text.tokens, *tokens], list(text.slots)) for text, tokens in new]
        for text in kept:
            self._network.slots.share(text.slots)
        self._release()
        self.texts = kept

    def fork(self) -> DrafterSession:
        texts = [DraftedText(list(text.tokens), list(text.slots)) for text in self.texts]
        for text in texts:
            self._network.slots.share(text.slots)
        return DrafterSession(self._network, texts, self.target)

    def close(self) -> None:
        self._release()
        self.texts = []

    def _forget(self, text: DraftedText) -> None:
        self._network.slots.drop(text.drafts)
        text.drafts, text.depths, text.end = [], [], None

    def _release(self) -> None:
        for text in self.texts:
            self._forget(text)
            self._network.slots.drop(text.slots)
            text.slots = []


def _session(ask: ScoreRequest) -> DrafterSession:
    assert isinstance(ask.session, DrafterSession)
    return ask.session
