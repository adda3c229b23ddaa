"""Cascades by name: what drafts for the draft model is the small model where there is one, or a drafter by name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from .. import recipes, rules
from ..core.claim import Method
from ..loops.speculate import Speculate
from ..rules import draft
from .names import BY_MODELS


@dataclass(frozen=True)
class Cascading(Speculate):
    """A cascade that lets the small model draft inside, if there is one, once it is told which models there are."""

    small: Speculate = Speculate()  # noqa: RUF009  (frozen)

    def among(self, models: Collection[str]) -> Method:
        whole = self.small if draft.cascade.SMALL in models else self
        return Speculate(whole.draft, self.verify, self.budget)


def cascade_of(inner: str, depth: int, without: Speculate, nodes: int) -> Method:
    """A chain of `depth` tokens of the draft model, sped up by this drafter under the rule that goes with it."""
    if inner != BY_MODELS:
        return _held(recipes.methods.method(inner), depth, nodes)
    found, small = _held(without, depth, nodes), _held(recipes.methods.method("chain"), depth, nodes)
    return Cascading(found.draft, found.verify, found.budget, small)


def _held(inner: Method, depth: int, nodes: int) -> Speculate:
    assert isinstance(inner, Speculate)  # as all drafters by name are
    within = draft.Cascade(replace(inner).draft, inner.verify, depth)
    return Speculate(within, rules.verify.rejection, budget=depth + nodes)
