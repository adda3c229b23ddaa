"""Logprobs in OpenAI's shapes: those of the model's own law, before temperature and truncation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...api.writer import Event
from ...models.vocabulary import Vocabulary

LEAST = -9999.0  # what OpenAI writes for next to never; JSON has no infinity


def of_chat(events: Sequence[Event], vocabulary: Vocabulary) -> dict[str, Any]:
    """Token by token, each with its bytes and its alternatives."""
    content = [
        {**_token(e.token, e.raw_logprob, vocabulary), "top_logprobs": [_token(*pair, vocabulary) for pair in e.top]}
        for e in events
    ]
    return {"content": content, "refusal": None}


def of_completion(events: Sequence[Event], vocabulary: Vocabulary, offset: int) -> dict[str, Any]:
    """Four lists of the same length; the text is `offset` characters long before the first token."""
    offsets: list[int] = []
    for event in events:
        offsets.append(offset)
        offset += len(event.text)
    return {
        "tokens": [vocabulary.name(event.token) for event in events],
        "token_logprobs": [_finite(event.raw_logprob) for event in events],
        "top_logprobs": [{vocabulary.name(x): _finite(p) for x, p in event.top} for event in events],
        "text_offset": offsets,
    }


def _token(token: int, logprob: float | None, vocabulary: Vocabulary) -> dict[str, Any]:
    piece = vocabulary.piece(token)
    return {"token": vocabulary.name(token), "logprob": _finite(logprob), "bytes": list(piece)}


def _finite(logprob: float | None) -> float:
    return LEAST if logprob is None else max(float(logprob), LEAST)
