"""The whole model interface: what a decoder may ask of a runner, and what it gets back.

A decoder is a generator that yields asks. It never touches a model, a tensor layout or a cache. `Keep` names tokens
(a tree and its nodes), not cache slots: what is stored and what is still to be computed is the runner's business.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, overload

import torch
from torch import Tensor

from .canvas import Canvas, Status
from .chance import At, Chance, Philox, Role
from .law import Law, best_of
from .tree import NOBODY, NOTHING, ROOT, Tree
from .warp.warp import Prefix, Scored, temperature_of

TARGET = "target"


@dataclass(frozen=True)
class Score:
    """Score a tree → `Scores`.

    `want` names hidden states: "hidden:i" is what enters layer i, "hidden:-1" what leaves the last norm. "prompt:k" are
    the k most probable tokens at every place of the prompt, if it is read now. And "heads:k" are the k best guesses of
    each of the model's heads, which look further ahead than the next token.
    """

    tree: Tree = NOTHING
    by: str = TARGET
    want: tuple[str, ...] = ()


Tops: TypeAlias = Mapping[int, Sequence[tuple[int, float]]]
Ahead: TypeAlias = Callable[[int, int], Sequence[Sequence[tuple[int, float]]]]


@dataclass(frozen=True)
class Scores:
    """The law after every tree node and after every kept leaf, with the hidden states that were wanted.

    A hidden state is a matrix with one row per node, then one per leaf. `tops[i]` are the most probable tokens at place
    i of the text with their probabilities, best first, where they were wanted and this very forward has read what is
    before, or an earlier one has told them; what a cache held untold, or a runner cannot tell, is left out.
    `ahead(node, token)`, where guesses of heads were wanted and the model has some, tells for each the likeliest tokens
    with their probabilities, best first: the first head guesses what follows that token after the node (or leaf ~r),
    and each next one a token further.
    """

    after: Sequence[Law]
    leaf: Sequence[Law]
    hidden: Mapping[str, Tensor] = field(default_factory=dict)
    rows: int = 0  # token rows that were computed to answer
    tops: Tops = field(default_factory=dict)
    ahead: Ahead | None = None

    def law(self, node: int) -> Law:
        """The law after a node, or after leaf ~r."""
        return self.after[node] if node >= 0 else self.leaf[~node]

    def best(self, k: int) -> list[list[tuple[int, float]]]:
        """The k most probable tokens after the first leaf and after every node, each with its weight among the k.

        The rest of the vocabulary would cost a pass over it, and who asks for the best has no use for it.
        """
        rows = [self.leaf[0].scores, *(law.scores for law in self.after)]
        if rows[0].is_cpu:  # one by one: all at once would wake PyTorch's threads, which then wait where forwards run
            return [best_of(row[None], k)[0] for row in rows]
        return best_of(torch.stack(rows), k)


@dataclass(frozen=True)
class Keep:
    """Make the texts that end in these nodes the new leaves, each with an extra token if one is given → None.

    Node ~r is the old leaf r, so several nodes fork a text and an empty tree keeps a leaf as it is. Without `by` the
    ask goes to every model of the request.
    """

    tree: Tree
    nodes: tuple[int, ...] = (ROOT,)
    extra: tuple[int | None, ...] = (None,)
    by: str | None = None


@dataclass(frozen=True)
class Check:
    """Score a tree with the target and verify it → `Checked`.

    A runner may answer on the device with the rule's own kernel; `answer` is the reference, and the truth.
    """

    tree: Tree
    prefix: Prefix
    verify: Verify
    chance: Chance
    want: tuple[str, ...] = ()  # as for Score
    last: frozenset[int] = NOBODY  # nodes that end the text: of what follows them nothing is kept

    def answer(self, scores: Scores) -> Checked:
        """What the rule says, given the scores."""
        scored = self.scored(scores)
        return Checked(self.verify(scored, self.chance), scored, scores)

    def scored(self, scores: Scores) -> Scored:
        """The tree with these scores."""
        return Scored(self.tree, self.prefix, scores.leaf[0], scores.after, self.last, scores.hidden)


class Verdict(NamedTuple):
    """The last accepted node, and the token that follows it."""

    node: int
    token: int


Verify: TypeAlias = Callable[[Scored, Chance], Verdict]


class Checked(NamedTuple):
    """A verdict with the scores it was reached on."""

    verdict: Verdict
    scored: Scored
    scores: Scores


@dataclass(frozen=True)
class Write:
    """Go on writing after a text, each token drawn from the target's law after all warps → `Written`, and kept.

    A runner may write up to `most` tokens before it looks up, if nobody looks at their laws; the truth is one `Check`
    of nothing under sample matching for each, and a `Keep` of what it says. A runner that can may draft up to `ahead`
    tokens for itself at every step, under sample matching: that takes fewer forwards and writes the same. Behind a
    token of `ends` nothing is wanted: a runner that notices in time need not write it.
    """

    prefix: Prefix
    chance: Chance
    most: int = 1
    ahead: int = 0
    ends: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Draw:
    """Draw a chain of at most `depth` tokens with a model, each under the request's warps → `Drew`, or None.

    The first is drawn at address `first`, each next one a position further. A runner that draws on its device answers;
    all others say None, and then the chain is drawn from one `Score` after the other, which is the truth.
    """

    prefix: Prefix
    depth: int
    chance: Chance
    first: At
    by: str

    @property
    def simple(self) -> bool:
        """Whether it comes down to a temperature and the numbers of drafts, which a device can compute."""
        drawn = isinstance(self.chance, Philox) and self.first.role is Role.DRAFT
        return drawn and temperature_of(self.prefix.warp) is not None


class Drew(NamedTuple):
    """A drawn chain, each token with the law that it was drawn from."""

    tree: Tree
    rows: int  # token rows that were computed for it


class DeviceRound(NamedTuple):
    """A step in which a runner drafted for itself: how many tokens it drafted, and how many came of it in all."""

    drafted: int
    tokens: int


class Written(NamedTuple):
    """Tokens that follow, with their laws before and after warps where those were wanted."""

    tokens: tuple[int, ...]
    before: Sequence[Law] = ()
    after: Sequence[Law] = ()
    rows: int = 0  # token rows that were computed for them
    rounds: tuple[DeviceRound, ...] = ()  # the steps they came in, if the runner drafted; else every token was one
    forwards: int = 0  # how many it took, if some of them brought nothing


@dataclass(frozen=True)
class Laws(Sequence[Law]):
    """The laws at some nodes, each made only when it is looked at."""

    of: Callable[[int], Law]
    nodes: Sequence[int]

    def __len__(self) -> int:
        return len(self.nodes)

    @overload
    def __getitem__(self, index: int) -> Law: ...
    @overload
    def __getitem__(self, index: slice) -> Laws: ...
    def __getitem__(self, index: int | slice) -> Law | Laws:
        if isinstance(index, slice):
            return Laws(self.of, self.nodes[index])
        return self.of(self.nodes[index])


class Soft(NamedTuple):
    """What a hole looks like to a model that takes mixtures: (1 − weight)·mask + weight·Σ p(x)·embedding(x)."""

    law: Law
    weight: float


@dataclass(frozen=True)
class Look:
    """Look at a canvas → `Field`: the law at each of some places, given everything else that stands on it.

    `at` are the places, all holes of the window unless told; a place that is filled is looked at as it stands. With
    `along`, the law of each of these places is the one given all that stands outside of them and those before it in
    this order: the density of tokens that were drafted together. With `trials`, the places are looked at on as many
    canvases, each with some tokens more, in one forward: the answer has place i of trial n at n · len(canvas) + i, and
    `Field.parted` takes it apart.

    A runner computes everything anew, unless it is told which places are to be `fresh`; all others are then seen as
    they were computed last, and of those the share `renew` that has changed most is computed too. Only the `seen`
    places are looked at by others, if told. That may change the answer; a runner may also know better and ignore it.
    """

    canvas: Canvas
    at: tuple[int, ...] | None = None
    by: str = TARGET
    along: tuple[int, ...] = ()
    fresh: frozenset[int] | None = None
    seen: frozenset[int] | None = None
    renew: float = 0.0
    soft: Mapping[int, Soft] = field(default_factory=dict)
    trials: tuple[Mapping[int, int], ...] = ()

    @property
    def wanted(self) -> tuple[int, ...]:
        """The places of the canvas whose laws are wanted."""
        return self.along or (tuple(self.canvas.holes) if self.at is None else self.at)

    @property
    def places(self) -> tuple[int, ...]:
        """The same as the answer has them: those of every trial, one trial after the other."""
        if not self.trials:
            return self.wanted
        return tuple(n * len(self.canvas) + i for n in range(len(self.trials)) for i in self.wanted)

    def tried(self) -> list[Look]:
        """A look of its own for every trial: what all of them together are to answer."""
        filled = (self.canvas.fill(trial, Status.DRAFT) for trial in self.trials)
        return [Look(canvas, self.wanted, self.by, soft=self.soft) for canvas in filled]


@dataclass(frozen=True)
class Price:
    """What a forward of a model costs this request now → `Cost`, or None if there is no such model.

    The answer may change how much is drafted, and never what is written.
    """

    by: str = TARGET


@dataclass(frozen=True)
class Share:
    """Have drafted nodes checked out of a budget shared by all who ask at once → how many of them, the first ones.

    `values` say how likely each is to stand, falling; `most` is what the request brings into the budget. The answer
    depends on other requests, so no value may depend on the token of its node if that was drawn.
    """

    values: tuple[float, ...]
    most: int


@dataclass(frozen=True)
class GiveWay:
    """Let others go on, should it be their turn → None: asked between two pieces of a rule's own work, such as rows.

    It may change when a text comes, and nothing else.
    """


@dataclass(frozen=True)
class Begin:
    """Have a draft model go on drafting while the target checks → None; `Fetch` tells what came of it.

    `proposing` scores trees with the model `by` and gives one. A runner that has nothing to gain by it may leave it.
    """

    proposing: Generator[Ask, Any, Tree]
    by: str


@dataclass(frozen=True)
class Fetch:
    """What was begun last → its `Tree`, or None if it was not done."""


@dataclass(frozen=True)
class Emit:
    """Hand finished tokens to whoever listens → None: their laws before and after warps, and how they came about.

    `rounds` is how many it took, if more than one ended before anybody could listen. A decoder that fills a canvas
    also shows that, after every look, even when nothing is final yet.
    """

    tokens: tuple[int, ...]
    before: Sequence[Law]
    after: Sequence[Law]
    drafted: int = 0
    accepted: int = 0
    rounds: int = 1
    canvas: Canvas | None = None


@dataclass(frozen=True)
class Done:
    """How a text ended: all its new tokens, the reason, and how many bytes of text a stop string takes back.

    `note` is what the method has to say of the text, for whoever asked for it; it is no part of the outcome.
    """

    tokens: tuple[int, ...]
    reason: str
    trim: int = 0
    note: str | None = field(default=None, compare=False)


class OutOfTime(Exception):
    """Raised at the ask of a decoder whose time is over: no model answers any more.

    It may still `Emit` what it has found and end. One that does not catch it ends with what it has emitted so far.
    """


Ask: TypeAlias = Score | Keep | Check | Write | Draw | Look | Price | Share | GiveWay | Begin | Fetch | Emit
Decoding: TypeAlias = Generator[Ask, Any, Done]
