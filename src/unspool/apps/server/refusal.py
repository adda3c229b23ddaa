"""Refusals: what a client is told instead of an answer, in OpenAI's shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...core.errors import BadRequest, BadScores, ContextExceeded, RankLost, UnspoolError
from .server_request import Busy
from .worker import ShuttingDown

RETRY = 1  # seconds after which one that shuts down may have been replaced


@dataclass
class Refusal(Exception):
    """An HTTP status with OpenAI's error object."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry: int = RETRY

    @property
    def kind(self) -> str:
        """OpenAI's name for this kind of error."""
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    @property
    def headers(self) -> dict[str, str]:
        """What the status asks to be said beside it."""
        if self.status in (429, 503):
            return {"Retry-After": str(self.retry)}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}

    def record(self) -> dict[str, Any]:
        """The body of the response."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def refusal(error: Exception) -> Refusal:
    """What an error means to a client; of a mistake in the server itself it is told no more than that."""
    match error:
        case Refusal():
            return error
        case Busy():
            return Refusal(429, str(error), code="queue_full", retry=math.ceil(error.wait))
        case ShuttingDown():
            return Refusal(503, str(error), code="shutting_down")
        case BadScores():
            return Refusal(500, str(error), code="bad_scores")
        case RankLost():
            return Refusal(503, str(error), code="rank_lost")
        case ContextExceeded():
            return Refusal(400, str(error), param=error.param, code="context_length_exceeded")
        case BadRequest():
            return Refusal(400, str(error), param=error.param, code="invalid_value")
        case UnspoolError():
            return Refusal(400, str(error))
        case RecursionError():  # of a schema or grammar, as all else here is flat
            return Refusal(400, "the request is nested too deeply")
        case _:
            return Refusal(500, "the server failed at this request; its log says how", code="internal_error")
