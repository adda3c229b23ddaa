"""The whole model interface: what a decoder may ask of a runner, and what it gets back.

A decoder is a generator that yields asks. It never touches a model, a tensor layout or a cache. `Keep` names tokens
(a tree and its nodes), not cache slots: what is stored and what is still to be computed is the runner's business.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from .canvas import Canvas
from .chance import Chance
from .law import Law
from .tree import NOTHING, ROOT, Tree
from .warp.warp import Prefix, Scored

TARGET = "target"


@dataclass(frozen=True)
class Score:
    """Score a tree → `Scores`.

    `want` names hidden states: "hidden:i" is what enters layer i, "hidden:-1" what leaves the last norm.
    """

    tree: Tree = NOTHING
    by: str = TARGET
    want: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scores:
    """The law after every tree node and after every kept leaf, with the hidden states that were wanted.

    A hidden state is a matrix with one row per node, then one per leaf.
    """

    after: Sequence[Law]
    leaf: Sequence[Law]
    hidden: Mapping[str, Tensor] = field(default_factory=dict)
    rows: int = 0  # token rows that were computed to answer

    def law(self, node: int) -> Law:
        """The law after a node, or after leaf ~r."""
        return self.after[node] if node >= 0 else self.leaf[~node]


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

    def answer(self, scores: Scores) -> Checked:
        """What the rule says, given the scores."""
        scored = Scored(self.tree, self.prefix, scores.leaf[0], scores.after)
        return Checked(self.verify(scored, self.chance), scored, scores)


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
class Look:
    """Look at a canvas → `Field`: the law of every hole of its window, given everything else on it."""

    canvas: Canvas
    by: str = TARGET


Field: TypeAlias = Mapping[int, Law]


@dataclass(frozen=True)
class Emit:
    """Hand finished tokens to whoever listens → None: their laws before and after warps, and how they came about."""

    tokens: tuple[int, ...]
    before: Sequence[Law]
    after: Sequence[Law]
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class Done:
    """How a text ended: all its new tokens, the reason, and how many bytes of text a stop string takes back."""

    tokens: tuple[int, ...]
    reason: str
    trim: int = 0


Ask: TypeAlias = Score | Keep | Check | Look | Emit
Decoding: TypeAlias = Generator[Ask, Any, Done]
