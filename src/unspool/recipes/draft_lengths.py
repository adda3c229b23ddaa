"""Recipes of drafters that decide in every round how long a chain of a draft model becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from .. import rules
from ..core.claim import Method
from ..core.errors import BadRequest
from ..core.option import Choice, Depth, FileName, Range, Share, Weight, part
from ..loops.speculate import Speculate
from ..rules import draft

LENGTHS = ("heuristic", "ema", "confident", "threshold", "best", "fixed")


def adaedl(first: Share = 0.4, scale: Weight = 0.2, aim: Share = 0.9, by: Share = 0.01, longest: Depth = 20) -> Method:
    """A chain under rejection that ends at a bound of entropy, whose bar follows what was accepted."""
    length = draft.AdaEDL(first, scale, aim, by, longest)
    return Speculate(draft.Paced(length), rules.verify.rejection, budget=longest)


def paced(
    length: Annotated[str, Choice(LENGTHS)] = "heuristic",
    longest: Annotated[int, Range(0, 256)] = 0,
    least: Depth = 2,
    doubt: Share = 0.3,
    ratio: Annotated[float, Range(0, 1000)] = 0.0,
) -> Method:
    """A chain under rejection whose length one of the rules decides, at most `longest` (0: the rule's own).

    `least` and `doubt` are those of `confident`; `ratio`, for `best`, is a draft step's cost in steps of the target,
    0 to have it measured.
    """
    grow, most = rules.grow, longest or 20
    kinds: Mapping[str, Callable[[], rules.grow.Length]] = {
        "heuristic": lambda: grow.Heuristic(min(5, most), most),
        "ema": lambda: grow.Ema(longest or 16),
        "confident": lambda: grow.ConfidentLength(doubt, min(least, most), most),
        "threshold": lambda: grow.Threshold(longest=most),
        "best": lambda: grow.Best(ratio, longest or 16),
        "fixed": lambda: grow.FixedLength(longest or 4),
    }
    return Speculate(draft.Paced(part("length", length, kinds)()), rules.verify.rejection, budget=most)


def specdecpp(head: FileName = "", doubt: Share = 0.3, least: Depth = 2, longest: Depth = 20) -> Method:
    """A chain under rejection that ends where the trained head of a file expects a refusal."""
    if not head:
        raise BadRequest(
            "specdecpp needs a trained head: make one with `unspool train length --draft MODEL --out FILE`, then write "
            "specdecpp:head=FILE; without one there is paced:length=confident"
        )
    made = draft.SpecDecPP(draft.AcceptanceHead.load(head), doubt, min(least, longest), longest)
    return Speculate(made, rules.verify.rejection, budget=longest)


def svip(doubt: Weight = 0.3, scale: Weight = 0.15, longest: Depth = 40) -> Method:
    """A chain under rejection that ends where the entropy of the draft's law says so."""
    return Speculate(draft.Paced(draft.SVIP(doubt, scale, longest)), rules.verify.rejection, budget=longest)
