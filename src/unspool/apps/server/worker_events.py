"""News: what the worker tells about a request, in order: it began, wrote, ended text by text, or failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ...api.writer import Event
from ...core.trace import Trace


@dataclass(frozen=True)
class Began:
    """All that was asked for can be done; the prompts have so many tokens together."""

    prompt: int


@dataclass(frozen=True)
class Wrote:
    """One of the texts went on: this is certain now, by these tokens."""

    index: int
    text: str
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Showed:
    """Somebody looks at a text while it is written, and this is what there is to see."""

    record: dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """One of the texts is finished; `reason` is that of `Output`."""

    index: int
    reason: str
    trace: Trace


@dataclass(frozen=True)
class Failed:
    """Nothing more will come of the request."""

    error: Exception


News: TypeAlias = Began | Wrote | Showed | Ended | Failed
