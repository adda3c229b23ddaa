"""Looks with trials, for models that know only looks at one canvas."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.canvas import Field
from .contracts import FillsBlocks, Infill, LookRequest


def looked(model: Infill, asked: Sequence[LookRequest]) -> list[Field]:
    """The answers of a model; one that knows no trials is asked a look for each of them, all in one forward."""
    if isinstance(model, FillsBlocks) or not any(ask.look.trials for ask in asked):
        return model.look(asked)
    parts = [[LookRequest(ask.session, each) for each in ask.look.tried() or [ask.look]] for ask in asked]
    told = iter(model.look([each for part in parts for each in part]))
    return [_joined(ask, [next(told) for _ in part]) for ask, part in zip(asked, parts, strict=True)]


def _joined(ask: LookRequest, told: Sequence[Field]) -> Field:
    if not ask.look.trials:
        return told[0]
    laws = [field[place] for field in told for place in ask.look.wanted]
    return Field(dict(zip(ask.look.places, laws, strict=True)), sum(field.rows for field in told))
