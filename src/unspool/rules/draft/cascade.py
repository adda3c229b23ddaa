"""A cascade: the draft model is itself sped up by speculation, exactly, so that its drafts cost less."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...core.asks import TARGET, Ask, Begin, Draw, Fetch, GiveWay, Look, Price, Score, Scores, Share, Verify
from ...core.chance import At, Chance, Readdressed
from ...core.claim import LAW, Method, claims
from ...core.errors import BadRequest, EmptyLaw
from ...core.law import Drawn, Law
from ...core.tree import ROOT, Tree
from ...core.verifier import sample_match
from ...core.warp.warp import Prefix, Scored
from ...loops.drafter import Draft, Memoryless, Proposing, begun, check_drafter
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .chain import DRAFT, Chain
from .composite import proposed
from .lookup import Lookup

SMALL = "small"  # the model that drafts for the draft model
END = -1  # stands for the token after a node where warps leave the draft model none
APART = 1 << 12  # more siblings than any draft has: keeps the noise of inner rounds apart


def _trials(_: type[Cascade]) -> list[Method]:
    two = Speculate(Cascade(Chain(1), rejection, 2), rejection)  # the second inner round begins after the first's token
    one = Speculate(Cascade(Chain(1), rejection, 1), rejection)
    copied = [Speculate(Cascade(Lookup(1, 1, 1), depth=depth), rejection, budget=depth + 1) for depth in (1, 3)]
    return [*copied, one, two]


@claims(
    LAW,
    trials=_trials,
    paper="2505.22179",
    systems=("SpecMQuant (hierarchical)", "exact cascades of several models"),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class Cascade(Memoryless):
    """Let the draft model write until it has `depth` tokens, itself sped up by `draft` under the exact rule `verify`.

    What an exact rule lets through has the draft model's law q, so the chain carries q and any outer rule stays exact.
    The length is a stopping time: whether one more token is there is settled before that token is drawn. A drafter that
    asks a model in here asks the one called "small", so three models make two levels. `escalate` is another way to use
    three: it asks the larger draft model only where the smaller is not sure. Where warps leave the draft model no
    token, the chain ends.

    Inside, the draft model is the target: it is the one that tells the drafter what that wants. So the cascade wants
    nothing of the real target for it, and does not rest when it does; there is then just nothing to check.

    Claim: LAW under rejection, whatever drafts inside; the claim of `verify` must be LAW or SEED.
    Cost: one forward of the draft model per inner round, over the inner drafts; the inner drafter begins anew in every
    outer round, since the target may have taken back what it has seen.
    """

    draft: Draft = Lookup()  # noqa: RUF009  (frozen)
    verify: Verify = sample_match
    depth: int = 6
    reuses_noise = False  # whatever drafts inside: every inner round has noise of its own

    def __post_init__(self) -> None:
        check_drafter("cascade:draft", self.draft)
        if not callable(self.verify):
            raise BadRequest(
                f"cascade:verify={self.verify!r} cannot be used; expected an exact rule such as sample_match"
            )
        if self.depth < 1:
            raise BadRequest(f"cascade:depth={self.depth} cannot be used; expected a depth from 1 on")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        written: list[Drawn] = []
        inner, here = begun(self.draft, prefix), prefix
        while len(written) < prefix.ahead(min(self.depth, budget)):
            noise = Readdressed(chance, partial(_inner, len(prefix), len(written)))
            trunk = Tree.chain(written)
            tree: Tree = yield from _below(trunk, proposed(inner, here, budget, noise))
            scores: Scores = yield from _score(trunk, Score(tree, by=DRAFT, want=inner.want))
            scored = _ending(_EndedScores(tree, here, scores.leaf[0], scores.after))
            node, token = self.verify(scored, noise)
            path = scored.tree.path(node)
            tokens = (*scored.tree.tokens(path), token)
            written += [Drawn(x, scored.law(n)) for x, n in zip(tokens, [ROOT, *path], strict=True) if x != END]
            if token == END:
                break
            here = here.then(tokens)
            inner.learn(here, tree, scores)
        return Tree.chain(written[:budget])


def _inner(round: int, written: int, at: At) -> At:
    """An address of one inner round, which is used by neither the outer round nor any other inner one."""
    if at.k >= APART:
        raise BadRequest("a cascade inside a cascade cannot be run; expected one cascade of two levels")
    return at._replace(k=(written + 1) * APART + at.k, round=round)


class _EndedScores(Scored):
    """The draft model's laws; where it has no token left, the text of this model ends."""

    def law(self, node: int) -> Law:
        try:
            law = super().law(node)
        except EmptyLaw:
            return Law.point(END)
        return Law.point(END) if law.is_empty() else law


def _ending(scored: _EndedScores) -> _EndedScores:
    """The same tree with nothing below the ends, so that no rule weighs a token there."""
    tree = scored.tree
    ends = {node for node in (ROOT, *range(len(tree))) if scored.law(node).best == END}
    if not ends:
        return scored
    kept = [node for node in range(len(tree)) if ends.isdisjoint([ROOT, *tree.path(node)[:-1]])]
    return _EndedScores(tree.only(kept), scored.prefix, scored.raw_root, [scored.raw_after[node] for node in kept])


def _below(trunk: Tree, proposing: Proposing) -> Proposing:
    """What an inner drafter proposes to follow the trunk: it asks about its own tree, and is answered below it."""
    reply: Any = None
    while True:
        try:
            ask = proposing.send(reply)
        except StopIteration as end:
            tree: Tree = end.value
            return tree
        if isinstance(ask, (Draw, Begin, Fetch)):  # below a trunk a chain is drawn from scores, one after the other
            reply = None
            continue
        if isinstance(ask, Share):  # what is checked here is the draft model's business alone
            reply = min(len(ask.values), ask.most)
            continue
        if isinstance(ask, GiveWay):
            reply = yield ask
            continue
        assert isinstance(ask, (Score, Look, Price)), "a drafter scores, looks and asks for prices"
        ask = replace(ask, by={TARGET: DRAFT, DRAFT: SMALL}.get(ask.by, ask.by))
        reply = (yield from _score(trunk, ask)) if isinstance(ask, Score) else (yield ask)


def _score(trunk: Tree, ask: Score) -> Generator[Ask, Any, Scores]:
    size, tree = len(trunk), ask.tree
    end = size - 1 if size else ROOT
    parents = (end if parent < 0 else parent + size for parent in tree.parent)
    scores: Scores = yield replace(ask, tree=Tree(trunk.drawn + tree.drawn, (*trunk.parent, *parents)))
    rows = [*range(size, size + len(tree)), end]  # the leaf's own row is the last, which is row ~0
    hidden = {name: states[rows] for name, states in scores.hidden.items()}
    guesses = scores.ahead
    ahead = None if guesses is None else (lambda node, token: guesses(end if node < 0 else node + size, token))
    return Scores(scores.after[size:], [scores.law(end)], hidden, scores.rows, scores.tops, ahead)
