"""Recipes of verifiers that need a drafter of their own."""

from __future__ import annotations

from typing import Annotated

from ..core.asks import TARGET
from ..core.claim import Method
from ..core.option import Choice, Depth, Range, Share
from ..loops.speculate import Speculate
from ..rules import draft, verify


def blended(weight: Share = 0.5, depth: Depth = 16, by: Annotated[str, Choice((TARGET, "draft"))] = TARGET) -> Method:
    """A raced block, accepted as far as the blended law agrees."""
    return Speculate(verify.RacedBlock(depth, by), verify.Blended(weight), budget=depth)


def rollback(
    sure: Share = 0.6, steps: Depth = 10, surprise: Annotated[float, Range(0, 1000, endless=True)] = 5.0
) -> Method:
    """BiLD: a little model writes while it is sure, the big one rolls back."""
    return Speculate(draft.BiLD(sure, steps), verify.Rollback(surprise), budget=steps)
