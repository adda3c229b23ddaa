"""Admission: who may join when, and what is refused at once, with the reason, since no waiting would help."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from ...core.asks import TARGET
from ...core.errors import BadRequest, OutOfRoom
from .contracts import Causal
from .job import Job


def admitted(waiting: deque[Job], live: Collection[Job], room: float, crowd: float) -> tuple[list[Job], bool]:
    """Take those out of the queue who may join now, and tell whether somebody is held back who could.

    `room` is how many tokens of cache are promised to nobody, `crowd` how many may live together. A prompt that another
    request is just reading is waited for, and then shared.
    """
    came: list[Job] = []
    held: list[Job] = []
    read = {job.key for job in live if job.trace.forwards[TARGET]} if waiting else set()
    reading = {job.key for job in live} - read if waiting else set()
    while waiting and len(live) + len(came) + len(held) < crowd and waiting[0].room <= room:
        job = waiting.popleft()
        room -= job.room
        if job.key in reading:
            held.append(job)
            continue
        if job.key not in read:
            reading.add(job.key)
        came.append(job)
    waiting.extendleft(reversed(held))
    return came, bool(held)


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
