"""What a drafter is: a small setting that begins one source of trees per request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..core.asks import Ask, Scores, Tops, Verify
from ..core.chance import Chance
from ..core.errors import BadRequest, EmptyLaw
from ..core.law import Law
from ..core.tree import NOTHING, Tree
from ..core.warp.warp import Prefix

Proposing: TypeAlias = Generator[Ask, Any, Tree]


class Source(ABC):
    """Proposes trees for one text, and may learn from what the target said of them.

    Only `propose` must be written; all else has a default that asks for nothing and does nothing. A round is one check
    of a tree, which may be empty. In every round the loop looks at `rest`, asks `propose`, checks the tree with `want`
    and then calls `learn`. While `rest` says so it writes without rounds.
    """

    @property
    def want(self) -> tuple[str, ...]:
        """What the next check is to tell beside its laws, in the words of `Score`: ("prompt:8",), ("heads:4",), …

        `learn` finds it in its scores. A runner may tell more than was wanted, since others may want more.
        """
        return ()

    @property
    def ahead(self) -> int:
        """How many tokens a model may draft for itself at every step while this source rests; 0 for none."""
        return 0

    @property
    def listens(self) -> bool:
        """Whether `told` has a use for what it is told, so that it is worth the work of finding that out."""
        return False

    def rest(self, prefix: Prefix) -> int:
        """For how many tokens from here on there is nothing to draft; 0 to be asked.

        While a source says 0 no token is written without a round, so that it hears of all of them.
        """
        return 0

    @abstractmethod
    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        """A tree of at most `budget` nodes to follow this prefix; may ask a draft model on the way."""

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:  # noqa: B027  (most have nothing to learn)
        """Take note of the text as it is now, after a round, and of the scores of the tree that was checked in it.

        It is called after every round that does not end the text, whether or not this source was asked in that round,
        and whoever's tree it was: other drafters may have added to the own one, taken from it, or drafted instead. The
        tokens that were written in the round, but for the last, are a path of the tree.
        """

    def told(self, text: tuple[int, ...], tops: Tops) -> None:  # noqa: B027  (few listen)
        """Take note of the tokens that the target ranked highest at places of the prompt, once, after the first round.

        A source that does so declares that it `listens`.
        """


class Memory(ABC):
    """Bounded, and safe to share between threads. Who shares one shares what was written, and its timing."""

    @abstractmethod
    def __len__(self) -> int:
        """How many entries it has."""

    @abstractmethod
    def state(self) -> Any:
        """All of it as plain data: numbers, texts, lists, tuples and dictionaries of them."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Take over what `state` gave; whatever is wrong with it raises."""


class MemoryOfParts(Memory):
    """The memories of drafters that draft together; None for one that remembers nothing."""

    def __init__(self, *parts: Memory | None) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts if part is not None)

    def state(self) -> Any:
        return [None if part is None else part.state() for part in self.parts]

    def restore(self, state: Any) -> None:
        for part, kept in zip(self.parts, state, strict=True):
            if part is not None:
                part.restore(kept)


class Draft(ABC):
    """A way to draft: begins a source that knows one request and no other."""

    @property
    def reuses_noise(self) -> bool:
        """Whether it draws with numbers that serve again for the same position in the next round.

        The verifier must then decide token by token.
        """
        return False

    @property
    def verifies(self) -> Verify | None:
        """The one rule that its drafts can be verified with, where a model drafts and verifies for itself."""
        return None

    @property
    def warm(self) -> int:
        """How many entries a memory that was given to it has by now."""
        return 0

    def memory(self, most: int) -> Memory | None:
        """A memory of at most `most` entries that its sources could share; None if there is nothing to remember."""
        return None

    def sharing(self, memory: Any) -> Draft:
        """The same drafter, whose sources draft from this memory and add to it."""
        return self

    @abstractmethod
    def begin(self, prefix: Prefix) -> Source:
        """A fresh source for this prompt."""


class Memoryless(Draft, Source):
    """A drafter that keeps nothing of a text, so that it is its own source for every request.

    What a draft model has read is in the session that the runner holds.
    """

    def begin(self, prefix: Prefix) -> Source:
        return self


def begun(draft: Draft, prefix: Prefix) -> Source:
    """A fresh source of this drafter; refuses what does not derive from `Source`."""
    source = draft.begin(prefix)
    if not isinstance(source, Source):
        raise BadRequest(
            f"{type(draft).__name__}.begin gave an object of type {type(source).__name__}; expected a source, which "
            "derives from unspool.Source, as in `class Mine(unspool.Source)`"
        )
    return source


def check_drafter(place: str, given: object) -> None:
    """Refuse what does not derive from `Draft`; `place` is where it was given, as in "cascade:draft"."""
    if isinstance(given, Draft):
        return
    advice = "as Lookup(3, 2, 5) or Chain(4) are; your own derives from unspool.Draft"
    if isinstance(given, (tuple, list)):
        advice = "each as an argument of its own, as in Either(Lookup(3, 2, 5), Chain(4))"
    elif isinstance(given, type):
        advice = f"an instance and not the class, as in {given.__name__}()"
    raise BadRequest(f"{place}={given!r} cannot be used; expected a drafter, {advice}")


def possible(prefix: Prefix, law: Law) -> Law | None:
    """What really follows this prefix, given a draft model's law; None if warps leave that model no token.

    The target may still have one, so a draft ends here and the text does not.
    """
    try:
        shaped = prefix.shape(law)
        return None if shaped.is_empty() else shaped
    except EmptyLaw:
        return None


@dataclass(frozen=True)
class Nothing(Memoryless):
    """Proposes the empty tree."""

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        return NOTHING
