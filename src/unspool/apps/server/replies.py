"""Replies: what was written, in the shapes of OpenAI's two interfaces, whole or chunk by chunk.

Logprobs are those of the model's own law, before temperature and truncation.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

from ...api.lm import LM
from ...api.writer import Event
from ...core.trace import Trace
from ...core.version import VERSION
from ...models.vocabulary import Vocabulary
from .asking import Asking
from .tool_calls import ToolCallParser

LEAST = -9999.0  # what OpenAI writes for next to never; JSON has no infinity
SHORT = 32  # entries of a list that is written in no time
FINISH = {"eos": "stop", "token": "stop", "string": "stop"}  # all else is a limit: of tokens or of time


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


@dataclass
class ReplyChoice:
    """One text so far."""

    text: str = ""
    events: list[Event] = field(default_factory=list)
    reason: str | None = None
    trace: Trace = field(default_factory=Trace)
    calls: ToolCallParser | None = None  # reads the text, if it may call functions

    @property
    def finish(self) -> str | None:
        """OpenAI's word for why it ended; None while it has not."""
        if self.reason is None:
            return None
        if self.calls and self.calls.done:  # a further call that is cut off is not told
            return "tool_calls"
        return FINISH.get(self.reason, "length")

    def deltas(self, text: str) -> list[dict[str, Any]]:
        """What more text changes in a chat's message."""
        self.text += text
        return self.calls.push(text) if self.calls else [{"content": text}] if text else []

    def message(self) -> dict[str, Any]:
        """The message of a chat."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text, "refusal": None}
        if self.calls and self.calls.made:
            made = [call.record() for call in self.calls.made]
            return {**message, "content": self.calls.said or None, "tool_calls": made}
        return message


@dataclass(frozen=True)
class Reply:
    """The name, time and shape of one response; `logprobs` says whether those were asked for.

    `n` texts in a row have the same prompt. `predicted` says whether what was drafted is the client's prediction.
    """

    chat: bool
    model: str
    vocabulary: Vocabulary
    logprobs: bool
    method: str
    fingerprint: str
    n: int
    predicted: bool
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    @staticmethod
    def to(asking: Asking, model: str, lm: LM) -> Reply:
        """The reply to a request, by a model that clients call `model`."""
        logprobs, n = asking.settings.logprobs is not None, asking.settings.n
        return Reply(
            asking.chat, model, lm.vocabulary, logprobs, asking.method, system_fingerprint(lm), n, asking.predicts
        )

    @property
    def name(self) -> str:
        """The id as clients see it."""
        return ("chatcmpl-" if self.chat else "cmpl-") + self.id

    def whole(self, choices: Sequence[ReplyChoice], prompt: int) -> dict[str, Any]:
        """The response with every text."""
        kind = "chat.completion" if self.chat else "text_completion"
        made = [self._choice(index, choice) for index, choice in enumerate(choices)]
        return {**self._head(kind), "choices": made, "usage": self.usage(choices, prompt)}

    def opening(self, index: int, choice: ReplyChoice) -> dict[str, Any]:
        """The first chunk of a chat's text."""
        said = None if choice.calls else ""
        return self._chunk([{"index": index, "delta": {"role": "assistant", "content": said}, **_OPEN}])

    def pieces(self, index: int, choice: ReplyChoice, text: str, events: Sequence[Event]) -> list[dict[str, Any]]:
        """The chunks that carry what became certain of a text."""
        offset = len(choice.text)
        if self.chat:
            changes: list[dict[str, Any]] = [{"delta": delta} for delta in choice.deltas(text)]
            empty: dict[str, Any] = {"delta": {} if choice.calls else {"content": ""}}
        else:
            choice.text += text
            changes, empty = [{"text": text}] if text else [], {"text": ""}
        if not self.logprobs:
            return [self._chunk([{"index": index, **change, **_OPEN}]) for change in changes]
        first, *others = changes or [empty]  # the tokens' figures come with the first
        told = self._chunk([{"index": index, **first, **_OPEN, "logprobs": self._logprobs(events, offset)}])
        return [told, *(self._chunk([{"index": index, **change, **_OPEN}]) for change in others)]

    def closing(self, index: int, choice: ReplyChoice) -> dict[str, Any]:
        """The last chunk of a text, with what was held back in case it began a call."""
        held = choice.calls.end() if choice.calls else []
        said: dict[str, Any] = {"delta": held[0] if held else {}} if self.chat else {"text": ""}
        return self._chunk([{"index": index, **said, **_OPEN, "finish_reason": choice.finish}])

    def tally(self, choices: Sequence[ReplyChoice], prompt: int) -> dict[str, Any]:
        """The chunk after all texts, with what they took."""
        return {**self._chunk([]), "usage": self.usage(choices, prompt)}

    def usage(self, choices: Sequence[ReplyChoice], prompt: int) -> dict[str, Any]:
        """Tokens, and under `unspool` how they came about."""
        total = Trace()
        for choice in choices:
            total += choice.trace
        return {
            "prompt_tokens": prompt,
            "completion_tokens": total.tokens,
            "total_tokens": prompt + total.tokens,
            "prompt_tokens_details": {"cached_tokens": sum(choice.trace.cached for choice in choices[:: self.n])},
            "completion_tokens_details": {
                "accepted_prediction_tokens": total.accepted_tokens if self.predicted else 0,
                "rejected_prediction_tokens": total.drafted - total.accepted_tokens if self.predicted else 0,
            },
            "unspool": {
                "method": self.method,
                "rounds": total.rounds,
                "forwards": dict(total.forwards),
                "drafted": total.drafted,
                "accepted": total.accepted_tokens,
                "mean_acceptance_length": total.mean_acceptance_length,
                "draft_acceptance_rate": total.draft_acceptance_rate,
                "tokens_per_forward": total.tokens_per_forward,
            },
        }

    def _choice(self, index: int, choice: ReplyChoice) -> dict[str, Any]:
        said: dict[str, Any] = {"message": choice.message()} if self.chat else {"text": choice.text}
        return {"index": index, **said, "logprobs": self._logprobs(choice.events, 0), "finish_reason": choice.finish}

    def _logprobs(self, events: Sequence[Event], offset: int) -> dict[str, Any] | None:
        if not self.logprobs:
            return None
        # A token that ends a text is no part of it.
        seen = [event for event in events if event.token not in self.vocabulary.eos]
        return of_chat(seen, self.vocabulary) if self.chat else of_completion(seen, self.vocabulary, offset)

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head("chat.completion.chunk" if self.chat else "text_completion"), "choices": choices}

    def _head(self, kind: str) -> dict[str, Any]:
        named = {"id": self.name, "object": kind, "created": self.created, "model": self.model}
        return {**named, "system_fingerprint": self.fingerprint}


@cache
def _fingerprint(about: str) -> str:
    return "fp_" + sha256(about.encode()).hexdigest()[:12]


def system_fingerprint(lm: LM) -> str:
    """A name for all that a text depends on besides its request: model, precision, device and versions."""
    return _fingerprint(lm.key or f"{lm.name} · unspool {VERSION}")


_OPEN: dict[str, Any] = {"logprobs": None, "finish_reason": None}


def line(record: dict[str, Any]) -> bytes:
    """One server-sent event.

    In ASCII: some clients take U+2028 and the like for the end of a line.
    """
    return b"data: " + json.dumps(record).encode() + b"\n\n"


def body(record: Any) -> bytes:
    """A response as JSON, put together of parts: other threads would wait while a large one is written at once."""
    if isinstance(record, dict):
        return b"{" + b", ".join(json.dumps(key).encode() + b": " + body(value) for key, value in record.items()) + b"}"
    if isinstance(record, list) and len(record) > SHORT:
        return b"[" + b", ".join(map(body, record)) + b"]"
    return json.dumps(record).encode()


DONE = b"data: [DONE]\n\n"
