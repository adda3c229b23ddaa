"""Admission: what no amount of waiting would make possible is refused at once, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import BadRequest, OutOfRoom
from .session import Causal


def refuse_impossible(models: Mapping[str, Causal], text: tuple[int, ...], room: int) -> None:
    """Refuse a request that one of these models could never answer, whoever else is there."""
    for name, model in models.items():
        if not text:
            raise BadRequest("the prompt is empty: give at least one token to go on from")
        bad = [x for x in text if not 0 <= x < model.vocab]
        if bad:
            raise BadRequest(f"token {bad[0]} is outside the vocabulary of the {name} model (0..{model.vocab - 1})")
        if model.context is not None and len(text) >= model.context:
            raise OutOfRoom(
                f"the prompt has {len(text)} tokens, but the {name} model reads at most {model.context} and needs "
                "room for an answer. Shorten the prompt or choose a model with a longer context."
            )
        if model.room is not None and max(room, len(text)) > model.room:
            raise OutOfRoom(
                f"this request may need {max(room, len(text))} tokens of cache, but the {name} model has "
                f"{model.room}. Ask for fewer new tokens, or load the model with a larger cache."
            )
