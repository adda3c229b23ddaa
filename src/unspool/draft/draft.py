"""What a drafter is: a small setting that begins one source of trees per request."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, TypeAlias

from ..asks import Ask, Scores
from ..chance import Chance
from ..errors import EmptyLaw
from ..law import Law
from ..tree import Tree
from ..warp.warp import Prefix

Proposing: TypeAlias = Generator[Ask, Any, Tree]


class Source(Protocol):
    """Proposes trees for one text, and may learn from what the target said of them.

    It may also have `want`, see `wanted`, `rest`, see `resting`, and `ahead`, see `leaping`.
    """

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        """A tree of at most `budget` nodes to follow this prefix; may ask a draft model on the way."""
        ...

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Take note of the text as it is now and of the scores of the last tree."""
        ...


class Draft(Protocol):
    """A way to draft: begins a source that knows one request and no other."""

    def begin(self, prefix: Prefix) -> Source:
        """A fresh source for this prompt."""
        ...


def possible(prefix: Prefix, law: Law) -> Law | None:
    """What really follows this prefix, given a draft model's law; None if warps leave that model no token.

    The target may still have one, so a draft ends here and the text does not.
    """
    try:
        shaped = prefix.shape(law)
        return None if shaped.is_empty() else shaped
    except EmptyLaw:
        return None


def reuses_noise(draft: Draft) -> bool:
    """Whether a drafter, or one inside it, draws with numbers that serve again for the same position in the next round.

    A drafter says so by `reuses_noise = True`; the verifier must then decide token by token.
    """
    own: bool | None = getattr(draft, "reuses_noise", None)
    if own is not None:
        return own
    parts: list[Any] = [getattr(draft, field.name, None) for field in fields(draft)] if is_dataclass(draft) else []
    inner = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
    return any(reuses_noise(one) for one in inner if hasattr(one, "begin"))


def wanted(source: Source) -> tuple[str, ...]:
    """What a source wants to learn of the next forward beside its laws, in the words of `Score`: its `want`, if any."""
    want: tuple[str, ...] = getattr(source, "want", ())
    return want


def resting(source: Source, prefix: Prefix) -> int:
    """For how many tokens from here on a source has nothing to draft, 0 to be asked: its `rest(prefix)`, if any."""
    rest: Callable[[Prefix], int] | None = getattr(source, "rest", None)
    return 0 if rest is None else rest(prefix)


def leaping(source: Source) -> int:
    """How many tokens a model may draft for itself while this source rests, 0 for none: its `ahead`, if any."""
    ahead: int = getattr(source, "ahead", 0)
    return ahead
