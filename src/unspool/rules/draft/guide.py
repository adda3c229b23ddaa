"""Guides: what may follow a path, told only where somebody asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

from ...core.tree import ROOT, Tree
from ...core.warp.warp import Prefix

Kids: TypeAlias = Collection[tuple[int, float]]
"""Tokens that may come next, each with how sure somebody is of it, the surest first."""


class Guide(ABC):
    """Who can name what follows any path, so that nobody has to grow a tree before it is known how far.

    A place is whatever the guide finds its way by. A guide has as many voices as it has ways to know; how sure it is
    of a token is a rank within a voice, and the record of the voice makes a probability of it.
    """

    @property
    @abstractmethod
    def voices(self) -> tuple[float, ...]:
        """What each voice is believed to be worth before the text has told."""

    @abstractmethod
    def start(self, prefix: Prefix) -> Any:
        """The place where the text ends."""

    @abstractmethod
    def below(self, place: Any) -> tuple[int, Kids]:
        """What may follow a place, and which voice says so."""

    @abstractmethod
    def then(self, place: Any, token: int) -> Any:
        """The place one token further; None if there is nothing to say from there on."""


@dataclass(frozen=True)
class Planted(Guide):
    """A tree as a guide: it names its nodes, and of the k-th child it is 1 / (2 + k) sure if it does not say."""

    tree: Tree
    voices: tuple[float, ...] = (1.0,)

    def start(self, prefix: Prefix) -> int:
        return ROOT

    def below(self, place: int) -> tuple[int, Kids]:
        tree, named = self.tree, dict[int, float]()
        for k, kid in enumerate(tree.kids(place)):
            named.setdefault(tree.drawn[kid].token, tree.sure[kid] if tree.sure else 1 / (2 + k))  # of equals the first
        return 0, sorted(named.items(), key=itemgetter(1), reverse=True) if len(named) > 1 else named.items()

    def then(self, place: int, token: int) -> int | None:
        return self.tree.child(place, token)
