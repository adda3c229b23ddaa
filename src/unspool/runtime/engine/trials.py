"""Looks with trials, as far as a model can take them: some know only looks at one canvas, and none has room for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...core.asks import Look
from ...core.canvas import Field
from .contracts import FillsBlocks, Infill, LookRequest

TOGETHER = 1024  # places that the copies of one look have in one forward


def looked(model: Infill, asked: Sequence[LookRequest]) -> list[Field]:
    """The answers of a model; one that knows no trials is asked a look for each of them, all in one forward."""
    if not any(ask.look.trials for ask in asked):
        return model.look(asked)
    parts = [_parts(ask.look, isinstance(model, FillsBlocks)) for ask in asked]
    asks = [LookRequest(ask.session, look) for ask, own in zip(asked, parts, strict=True) for look in own]
    told = iter(model.look(asks))
    return [_joined(ask.look, own, [next(told) for _ in own]) for ask, own in zip(asked, parts, strict=True)]


def _parts(look: Look, knows: bool) -> list[Look]:
    """The looks that answer one: with as many trials each as there is room for, or with none."""
    if not look.trials or not knows:
        return look.tried() or [look]
    most = max(1, TOGETHER // len(look.canvas))
    return [replace(look, trials=look.trials[n : n + most]) for n in range(0, len(look.trials), most)]


def _joined(look: Look, parts: Sequence[Look], told: Sequence[Field]) -> Field:
    if len(parts) == 1:
        return told[0]
    laws = [field[place] for part, field in zip(parts, told, strict=True) for place in part.places]
    return Field(dict(zip(look.places, laws, strict=True)), sum(field.rows for field in told))
