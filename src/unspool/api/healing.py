"""Prompts that end inside a token: what `Settings(heal=True)` makes of a request."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..core.errors import BadRequest
from ..core.warp.warp import Warp
from ..models.chat_template import Dialogue
from ..models.vocabulary import Vocabulary
from ..rules import constrain
from .settings import Prompt, Settings, understood


class Healed(NamedTuple):
    """The prompt without its last tokens, the warps that have the text begin with their bytes, how many those are."""

    tokens: tuple[int, ...]
    warp: Warp
    skip: int


def healed(settings: Settings, prompt: Prompt, tokens: tuple[int, ...], vocabulary: Vocabulary) -> Healed:
    """How a text is continued whose last tokens may be the beginning of another.

    The bytes that were taken back are written again and count as tokens, but are no part of the text that is told.
    """
    if settings.suffix:
        raise BadRequest("heal cannot be used with suffix; leave one of them out", param="heal")
    if isinstance(understood(prompt), Dialogue):
        raise BadRequest(
            "heal is for a text that is continued as it stands; give raw=True (--raw), or leave heal out: an answer to "
            "a message begins where the message has ended",
            param="heal",
        )
    begin = constrain.taken_back(tokens, vocabulary)
    if not begin:
        return Healed(tokens, settings.warp(vocabulary), 0)
    left = len(begin)
    while left:
        left -= len(vocabulary.piece(tokens[-1]))
        tokens = tokens[:-1]
    form = settings.constraint
    then = form.fit(vocabulary) if isinstance(form, constrain.Form) else form
    bound = constrain.Constrained(constrain.Begun(begin, then, vocabulary))
    return Healed(tokens, bound | replace(settings, constraint=None).warp(vocabulary), len(begin))
