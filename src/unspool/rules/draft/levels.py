"""Trees that a draft model grows level by level, with so many siblings below every node of a level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...core.asks import Score, Scores
from ...core.chance import At, Chance, Role
from ...core.errors import BadRequest
from ...core.law import Drawn, Law
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Proposing
from .chain import DRAFT

Siblings: TypeAlias = Callable[[Prefix, Law, int, Chance, At], list[Drawn]]
"""At most so many tokens to follow a prefix, given a draft model's law there, drawn from an address on."""


def refuse_widths(name: str, widths: Sequence[int]) -> None:
    """Refuse widths that make no tree."""
    if not widths or min(widths) < 1:
        shown = "+".join(map(str, widths))
        raise BadRequest(f"{name}:widths={shown} cannot be used; expected a width from 1 on per level, as 3+2+1")


def level_by_level(widths: Sequence[int], siblings: Siblings, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
    """A tree with `widths[i]` siblings below every node of level i, as long as the budget lasts."""
    tree, start = NOTHING, len(prefix)
    level = {ROOT: prefix}
    for depth, width in enumerate(widths[: prefix.ahead(len(widths))]):
        scores: Scores = yield Score(tree, by=DRAFT)
        below: dict[int, Prefix] = {}
        for node, here in level.items():
            first = At(start + depth, Role.DRAFT, len(tree), start)
            for drawn in siblings(here, scores.law(node), min(width, budget - len(tree)), chance, first):
                tree, kid = tree.grow(drawn, node)
                below[kid] = here.then((drawn.token,))
        level = below
    return tree
