"""Admission: who may join when, and what is refused at once, with the reason, since no waiting would help."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from ...core.asks import TARGET
from ...core.errors import BadRequest, OutOfRoom
from .contracts import Causal
from .job import Job
from .shares import Ledger, Shares


def admitted(waiting: deque[Job], live: Collection[Job], tokens: Shares, places: Shares) -> tuple[list[Job], bool]:
    """Take those out of the queue who may join now, and tell whether somebody is held back who could.

    `tokens` of cache and `places` are what requests share, by their accounts: see `Shares`. A prompt that another
    request is just reading is waited for, and then shared.
    """
    if not waiting:
        return [], False
    came: list[Job] = []
    left: list[Job] = []
    read = {job.key for job in live if job.trace.forwards[TARGET]}
    reading = {job.key for job in live} - read
    ledger = Ledger(tokens, places)
    for job in live:
        ledger.take(job.account, job.room)
    shut, held = {False: False, True: False}, False  # whether the line of the small, of the large, goes no further
    while waiting and not all(shut.values()):
        job = waiting.popleft()
        large = ledger.large(job.account)
        if shut[large] or not ledger.allows(job.account, job.room, shut[True]):
            shut[large] = True
            left.append(job)
            continue
        ledger.take(job.account, job.room)
        if job.key in reading:
            held = True
            left.append(job)
            continue
        if job.key not in read:
            reading.add(job.key)
        came.append(job)
    waiting.extendleft(reversed(left))
    return came, held


def refuse_impossible(models: Mapping[str, Causal], text: tuple[int, ...], room: int, most: float) -> None:
    """Refuse a request that one of these models could never answer, or that needs more cache than one may hold."""
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
    if (need := max(room, len(text))) > most:
        raise OutOfRoom(
            f"this request may need {need} tokens of cache, but one request may hold {most:.0f} here. Ask for fewer "
            "new tokens, or let the server have a larger cache."
        )
